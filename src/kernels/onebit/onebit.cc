#include "kernels/onebit/onebit.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/onebit/onebit.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/onebit/onebit_reference.h"
#include "kernels/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// Calls take(begin, end, sum) for each block; returns the sum of all squares.
template <class Take>
HWY_INLINE double each_block(std::size_t n, Take take) {
  double total = 0;
  for (std::size_t begin = 0; begin < n; begin += reference::kSquareBlock) {
    reference::SquareSum sum;
    take(begin, std::min(n, begin + reference::kSquareBlock), sum);
    total += sum.total();
  }
  return reference::canonical(total);
}

#if QCCL_SCALAR

double onebit_pack(const float* input, std::size_t inputs, float* error, std::size_t n, std::byte* signs) {
  return each_block(n, [=](std::size_t begin, std::size_t end, reference::SquareSum& sum) {
    reference::onebit_pack(input, inputs, error, begin, end, signs, sum);
  });
}

void onebit_subtract(float scale, float* values, std::size_t n) { reference::onebit_subtract(scale, values, 0, n); }

double onebit_sum(const SignedPart* parts, std::size_t part_count, float* error, std::size_t n, std::byte* signs) {
  return each_block(n, [=](std::size_t begin, std::size_t end, reference::SquareSum& sum) {
    reference::onebit_sum(parts, part_count, error, begin, end, signs, sum);
  });
}

void onebit_expand(SignedPart part, float* target, std::size_t n, bool) {
  reference::onebit_expand(part, target, 0, n);
}

#else

namespace hn = hwy::HWY_NAMESPACE;

// Works in groups of 32 elements, whose signs are four bytes: one 32-bit word in which element e has bit e ^ 7 (bytes
// from the lowest on, in each the first element highest).

using OnebitTag = hn::CappedTag<float, 16>;
using OnebitBits = hn::RebindToUnsigned<OnebitTag>;
using OnebitFloats = hn::Vec<OnebitTag>;
using SquareTag = hn::Repartition<double, OnebitTag>;
using Squares = hn::Vec<SquareTag>;

inline constexpr std::size_t kGroup = 32;
inline constexpr std::size_t kVector = hn::MaxLanes(OnebitTag());
inline constexpr std::size_t kVectors = kGroup / kVector;  // of a group
inline constexpr std::size_t kSquareVectors = reference::kSquareLanes / (kVector / 2);
static_assert(reference::kSquareBlock % kGroup == 0);

// Entry e has only bit e ^ 7 set.
struct SignBits {
  alignas(64) std::uint32_t of[kGroup];
};
constexpr SignBits sign_bits() {
  SignBits bits{};
  for (unsigned e = 0; e < kGroup; ++e) bits.of[e] = 1u << (e ^ 7u);
  return bits;
}
inline constexpr SignBits kSignBits = sign_bits();

HWY_INLINE OnebitFloats canonical_floats(OnebitFloats v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(OnebitTag(), std::numeric_limits<float>::quiet_NaN()), v);
}

HWY_INLINE std::uint32_t load_signs(const std::byte* signs) {
  std::uint32_t word;
  std::memcpy(&word, signs, sizeof(word));
  return word;
}

// The values of vector `v` of the group whose signs are `word`.
HWY_INLINE OnebitFloats expanded(std::uint32_t word, std::size_t v, OnebitFloats plus, OnebitFloats minus) {
  const OnebitBits bits;
  const auto positive = hn::TestBit(hn::Set(bits, word), hn::Load(bits, kSignBits.of + v * kVector));
  return hn::IfThenElse(hn::RebindMask(OnebitTag(), positive), plus, minus);
}

// The hardware prefetcher starts anew in every page of 4 KiB: with a prefetch 2 KiB ahead, a pass over uncached arrays
// takes two thirds of the time.
HWY_INLINE void prefetch_group(const float* group) {
  constexpr std::size_t kAhead = 512;
  constexpr std::size_t kLine = 16;
  for (std::size_t i = 0; i < kGroup; i += kLine) hwy::Prefetch(group + kAhead + i);
}

// Collects the signs of a group, vector by vector.
class SignWriter {
 public:
  HWY_INLINE void put(std::size_t v, OnebitFloats value) {
    const OnebitTag d;
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, hn::Lt(value, hn::Zero(d)), bits);
    std::uint32_t part;
    std::memcpy(&part, bits, sizeof(part));
    negative_ |= part << (v * kVector);
  }
  HWY_INLINE void store(std::byte* signs) const {
    std::uint32_t word = ~negative_;
    word = (word >> 1 & 0x55555555u) | (word & 0x55555555u) << 1;
    word = (word >> 2 & 0x33333333u) | (word & 0x33333333u) << 2;
    word = (word >> 4 & 0x0F0F0F0Fu) | (word & 0x0F0F0F0Fu) << 4;
    std::memcpy(signs, &word, sizeof(word));
  }

 private:
  std::uint32_t negative_ = 0;
};

// Adds the squares of a vector at an even multiple of its lanes, of 16 elements at most, to the lanes of the block.
HWY_INLINE void add_squares(const OnebitFloats value, Squares& low, Squares& high) {
  const SquareTag d;
  const hn::Half<OnebitTag> half;
  const Squares lower = hn::PromoteTo(d, hn::LowerHalf(half, value));
  const Squares upper = hn::PromoteTo(d, hn::UpperHalf(half, value));
  low = hn::Add(low, hn::Mul(lower, lower));
  high = hn::Add(high, hn::Mul(upper, upper));
}

// Runs `value_at(begin, v)`, the new value of vector v of the group at `begin`, over whole groups of a block. Stores it
// in `values`, its signs in `signs`, and adds its squares to `sum`. Returns where the groups end.
template <class ValueAt>
HWY_INLINE std::size_t pack_groups(ValueAt value_at, float* values, std::size_t begin, std::size_t end,
                                   std::byte* signs, reference::SquareSum& sum) {
  const OnebitTag d;
  const SquareTag squares;
  Squares lanes[kSquareVectors];
  for (Squares& lane : lanes) lane = hn::Zero(squares);
  for (; begin + kGroup <= end; begin += kGroup) {
    prefetch_group(values + begin);
    SignWriter writer;
    HWY_UNROLL(8)
    for (std::size_t v = 0; v < kVectors; ++v) {
      const OnebitFloats value = canonical_floats(value_at(begin, v));
      hn::StoreU(value, d, values + begin + v * kVector);
      writer.put(v, value);
      const std::size_t lane = 2 * v % kSquareVectors;
      add_squares(value, lanes[lane], lanes[lane + 1]);
    }
    writer.store(signs + begin / kOnebitGroup);
  }
  for (std::size_t i = 0; i < kSquareVectors; ++i) hn::Store(lanes[i], squares, sum.lanes.data() + i * kVector / 2);
  return begin;
}

double onebit_pack(const float* input, std::size_t inputs, float* error, std::size_t n, std::byte* signs) {
  const OnebitTag d;
  const auto value_at = [&](std::size_t begin, std::size_t v) HWY_ATTR {
    if (v == 0) prefetch_group(input + begin);
    const std::size_t at = begin + v * kVector;
    return hn::Add(hn::LoadU(d, input + at), hn::LoadU(d, error + at));
  };
  return each_block(n, [&](std::size_t begin, std::size_t end, reference::SquareSum& sum) HWY_ATTR {
    const std::size_t done = pack_groups(value_at, error, begin, std::min(end, inputs), signs, sum);
    reference::onebit_pack(input, inputs, error, done, end, signs, sum);
  });
}

void onebit_subtract(float scale, float* values, std::size_t n) {
  const OnebitTag d;
  const OnebitFloats plus = hn::Set(d, scale);
  const OnebitFloats minus = hn::Set(d, -scale);
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    prefetch_group(values + i);
    HWY_UNROLL(8)
    for (float* at = values + i; at < values + i + kGroup; at += kVector) {
      const OnebitFloats value = hn::LoadU(d, at);
      const OnebitFloats taken = hn::IfThenElse(hn::Lt(value, hn::Zero(d)), minus, plus);
      hn::StoreU(canonical_floats(hn::Sub(value, taken)), d, at);
    }
  }
  reference::onebit_subtract(scale, values, i, n);
}

double onebit_sum(const SignedPart* parts, std::size_t part_count, float* error, std::size_t n, std::byte* signs) {
  const OnebitTag d;
  const auto value_at = [&](std::size_t begin, std::size_t v) HWY_ATTR {
    const auto of_part = [&](const SignedPart& part) HWY_ATTR {
      const std::uint32_t word = load_signs(part.signs + begin / kOnebitGroup);
      return expanded(word, v, hn::Set(d, part.scale), hn::Set(d, -part.scale));
    };
    OnebitFloats value = of_part(parts[0]);
    for (std::size_t part = 1; part < part_count; ++part) value = hn::Add(value, of_part(parts[part]));
    return hn::Add(value, hn::LoadU(d, error + begin + v * kVector));
  };
  return each_block(n, [&](std::size_t begin, std::size_t end, reference::SquareSum& sum) HWY_ATTR {
    const std::size_t done = pack_groups(value_at, error, begin, end, signs, sum);
    reference::onebit_sum(parts, part_count, error, done, end, signs, sum);
  });
}

// Elements up to the next boundary of a vector; n if there is none among the first n.
inline std::size_t elements_to_boundary(const float* target, std::size_t n) {
  constexpr std::size_t kBytes = kVector * sizeof(float);
  const std::size_t missing = (kBytes - reinterpret_cast<std::uintptr_t>(target) % kBytes) % kBytes;
  return missing % sizeof(float) == 0 ? std::min(n, missing / sizeof(float)) : n;
}

// The signs of the 32 elements from `first` on, in the bit order of load_signs(); reads 8 bytes.
HWY_INLINE std::uint32_t load_signs_from(const std::byte* signs, std::size_t first) {
  std::uint64_t word;
  std::memcpy(&word, signs + first / kOnebitGroup, sizeof(word));
  const std::uint64_t in_order = __builtin_bswap64(word) << (first % kOnebitGroup);
  return __builtin_bswap32(static_cast<std::uint32_t>(in_order >> 32));
}

// Writes whole groups from `begin`, which lies at a vector boundary in memory, bypassing the cache. Returns where they
// end.
HWY_INLINE std::size_t stream_groups(const SignedPart& part, OnebitFloats plus, OnebitFloats minus, float* target,
                                     std::size_t begin, std::size_t n) {
  const OnebitTag d;
  for (; begin + 2 * kGroup <= n; begin += kGroup) {  // so that signs remain to be read
    const std::uint32_t word = load_signs_from(part.signs, begin);
    HWY_UNROLL(8)
    for (std::size_t v = 0; v < kVectors; ++v)
      hn::Stream(expanded(word, v, plus, minus), d, target + begin + v * kVector);
  }
  hwy::FlushStream();
  return begin;
}

HWY_INLINE std::size_t store_groups(const SignedPart& part, OnebitFloats plus, OnebitFloats minus, float* target,
                                    std::size_t n) {
  const OnebitTag d;
  std::size_t begin = 0;
  for (; begin + kGroup <= n; begin += kGroup) {
    const std::uint32_t word = load_signs(part.signs + begin / kOnebitGroup);
    HWY_UNROLL(8)
    for (std::size_t v = 0; v < kVectors; ++v)
      hn::StoreU(expanded(word, v, plus, minus), d, target + begin + v * kVector);
  }
  return begin;
}

void onebit_expand(SignedPart part, float* target, std::size_t n, bool past_cache) {
  const OnebitTag d;
  const OnebitFloats plus = canonical_floats(hn::Set(d, part.scale));
  const OnebitFloats minus = canonical_floats(hn::Set(d, -part.scale));
  std::size_t done = 0;
  if (past_cache) {
    const std::size_t boundary = elements_to_boundary(target, n);
    reference::onebit_expand(part, target, 0, boundary);
    done = stream_groups(part, plus, minus, target, boundary, n);
  } else {
    done = store_groups(part, plus, minus, target, n);
  }
  reference::onebit_expand(part, target, done, n);
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {

QCCL_KERNEL(double, onebit_pack,
            (const float* input, std::size_t inputs, float* error, std::size_t n, std::byte* signs),
            (input, inputs, error, n, signs))
QCCL_KERNEL(void, onebit_subtract, (float scale, float* values, std::size_t n), (scale, values, n))
QCCL_KERNEL(double, onebit_sum,
            (const SignedPart* parts, std::size_t part_count, float* error, std::size_t n, std::byte* signs),
            (parts, part_count, error, n, signs))
QCCL_KERNEL(void, onebit_expand, (SignedPart part, float* target, std::size_t n, bool past_cache),
            (part, target, n, past_cache))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
