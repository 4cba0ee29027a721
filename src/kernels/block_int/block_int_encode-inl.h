// block_int_encode() in vectors. Per target.
//
// Blocks are taken in groups that stay in L1 between two passes. One pass finds the scales of the next group, so that
// its reductions and divisions overlap with the other pass, which turns the current group's elements into integers.

#include <algorithm>
#include <cstring>
#include <utility>

#include "hwy/highway.h"
#include "kernels/block_int/block_int_scales-inl.h"
#include "kernels/lanes/codes-inl.h"
#include "kernels/lanes/pack-inl.h"
#include "kernels/lanes/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

inline constexpr std::size_t kIntChunk = 64;  // elements whose codes are whole bytes, for any width
inline constexpr std::size_t kIntRun = 4096;  // elements encoded at a time

// ---- Rounding: begin() a run, then convert elements times inverses to integers, from `at` of the run on: one() for
// one vector, four() for four as bytes.

struct NearestIntegers {
  static constexpr bool kStochastic = false;
  explicit NearestIntegers(const RandomStream*) {}
  void begin(std::size_t, std::size_t) {}
  HWY_INLINE Integers one(Values steps, std::size_t) const { return round_lanes(steps); }
#if HWY_ARCH_X86
  HWY_INLINE ByteCodesVector four(Values a, Values b, Values c, Values e, std::size_t) const {
    const WordVector first = pack_words(round_lanes(a), round_lanes(b));
    const WordVector second = pack_words(round_lanes(c), round_lanes(e));
    return in_order(pack_signed(first, second));
  }
#endif
};

struct StochasticIntegers {
  static constexpr bool kStochastic = true;
  explicit HWY_INLINE StochasticIntegers(const RandomStream* stream) : run(*stream) {}
  HWY_INLINE void begin(std::size_t index, std::size_t n) { bytes = run.at(index, n); }
  HWY_INLINE Integers one(Values steps, std::size_t at) const {
    const hn::Rebind<std::uint8_t, ValueTag> d;
    const Integers random = hn::PromoteTo(IntegerTag(), hn::LoadU(d, bytes + at));
    return hn::ShiftRight<8>(hn::Add(round_lanes(steps), random));
  }
#if HWY_ARCH_X86
  // 256 steps to an integer plus the random byte: together at most 127 * 256 + 255, which fits 16 bits.
  HWY_INLINE ByteCodesVector four(Values a, Values b, Values c, Values e, std::size_t at) const {
    const SignedWords d;
    const auto random = in_packed_order(hn::LoadU(UnsignedBytes(), bytes + at));
    const auto zero = hn::Zero(UnsignedBytes());
    const WordVector low = hn::BitCast(d, hn::InterleaveLower(UnsignedBytes(), random, zero));
    const WordVector high = hn::BitCast(d, hn::InterleaveUpper(UnsignedBytes(), random, zero));
    const WordVector first = hn::Add(pack_words(round_lanes(a), round_lanes(b)), low);
    const WordVector second = hn::Add(pack_words(round_lanes(c), round_lanes(e)), high);
    return in_order(pack_signed(hn::ShiftRight<8>(first), hn::ShiftRight<8>(second)));
  }
#endif
  RandomRun<kIntRun> run;
  const std::uint8_t* bytes = nullptr;
};

// For elements of a block whose scale is invalid or at its limit: replaces them by others that encode to the right
// integers.
inline void make_harmless(BlockIntFormat format, const std::byte* stored, const float* source, std::size_t n,
                          float* harmless) {
  std::uint16_t scale_bits;
  std::memcpy(&scale_bits, stored, sizeof(scale_bits));
  const float scale = reference::read_scale(scale_bits, format.bits);
  const float most = static_cast<float>(reference::largest_integer(format.bits)) * scale;
  for (std::size_t i = 0; i < n; ++i) harmless[i] = scale != scale ? 0.0f : std::clamp(source[i], -most, most);
}

// ---- Blocks of whole step units.

#if HWY_ARCH_X86
template <class Store, class Rounding>
class GroupEncoder {
 public:
  HWY_INLINE GroupEncoder(BlockIntFormat format, const float* source, std::size_t n, std::byte* target,
                          const RandomStream* random)
      : format_(format),
        source_(source),
        scales_(target),
        codes_(target + block_int_scale_bytes(format, n)),
        limit_(target + block_int_encoded_bytes(format, n)),
        store_(format.bits),
        rounding_(random) {}

  HWY_INLINE void encode(const BlockGroup& group) {
    for (std::size_t begin = group.begin; begin < group.end; begin += kIntRun) {
      const std::size_t n = std::min(kIntRun, group.end - begin);
      set_inverses(group, n);
      rounding_.begin(begin, n);
      encode_run(group.plain ? source_ + begin : harmless_run(begin, n), n, codes_ + begin / 8 * bits());
    }
  }

 private:
  std::size_t bits() const { return static_cast<std::size_t>(format_.bits); }

  HWY_INLINE void set_inverses(const BlockGroup& group, std::size_t n) {
    const ValueTag d;
    const std::size_t units = std::min<std::size_t>(format_.block_size, kIntRun) / kStepUnit;
    const std::size_t end = (n + kIntChunk - 1) / kIntChunk * (kIntChunk / kStepUnit);
    for (std::size_t unit = 0, block = 0; unit < end; unit += units, ++block) {
      const Values inverse = hn::Set(d, group.inverses[std::min(block, kGroupBlocks - 1)]);
      for (std::size_t i = 0; i < units; i += hn::Lanes(d)) hn::StoreU(inverse, d, inverses_ + unit + i);
    }
  }

  const float* harmless_run(std::size_t begin, std::size_t n) {
    for (std::size_t at = begin; at < begin + n;) {
      const std::size_t block = at / format_.block_size;
      const std::size_t end = std::min(begin + n, (block + 1) * format_.block_size);
      make_harmless(format_, scales_ + block * kBlockScaleBytes, source_ + at, end - at, harmless_ + (at - begin));
      at = end;
    }
    return harmless_;
  }

  HWY_INLINE void encode_run(const float* from, std::size_t n, std::byte* to) {
    const std::size_t whole = n / kIntChunk * kIntChunk;
    const std::size_t bytes = whole / 8 * bits();
    if (static_cast<std::size_t>(limit_ - to) >= bytes + Store::kSlack) {
      encode_chunks(from, 0, whole, to);
    } else {
      encode_chunks(from, 0, whole, spare_);
      std::memcpy(to, spare_, bytes);
    }
    if (whole == n) return;
    alignas(64) float padded[kIntChunk] = {};
    std::memcpy(padded, from + whole, (n - whole) * sizeof(float));
    encode_chunks(padded, whole, whole + kIntChunk, spare_);
    std::memcpy(to + bytes, spare_, ((n - whole) * bits() + 7) / 8);
  }

  // Elements [begin, end) of the run, whole chunks; the first lies at `from`.
  HWY_INLINE void encode_chunks(const float* from, std::size_t begin, std::size_t end, std::byte* to) {
    for (std::size_t i = begin; i < end; i += kIntChunk) {
      const Values low = hn::Set(ValueTag(), inverses_[i / kStepUnit]);
      const Values high = hn::Set(ValueTag(), inverses_[i / kStepUnit + 1]);
      encode_vector<0>(from + (i - begin), low, high, i, to);
    }
  }

  // Integers kFrom to kIntChunk of a chunk.
  template <std::size_t kFrom>
  HWY_INLINE void encode_vector(const float* from, Values low, Values high, std::size_t at, std::byte*& to) {
    if constexpr (kFrom < kIntChunk) {
      const ValueTag d;
      constexpr std::size_t kLanes = kValueLanes;
      const Values first = kFrom < kStepUnit ? low : high;
      const Values second = kFrom + 2 * kLanes < kStepUnit ? low : high;
      const Values a = hn::Mul(hn::LoadU(d, from + kFrom), first);
      const Values b = hn::Mul(hn::LoadU(d, from + kFrom + kLanes), first);
      const Values c = hn::Mul(hn::LoadU(d, from + kFrom + 2 * kLanes), second);
      const Values e = hn::Mul(hn::LoadU(d, from + kFrom + 3 * kLanes), second);
      store_.store(rounding_.four(a, b, c, e, at + kFrom), to);
      to += store_.bytes_per_vector();
      encode_vector<kFrom + 4 * kLanes>(from, low, high, at, to);
    }
  }

  const BlockIntFormat format_;
  const float* const source_;
  std::byte* const scales_;
  std::byte* const codes_;
  std::byte* const limit_;
  const Store store_;
  Rounding rounding_;
  alignas(64) float inverses_[kIntRun / kStepUnit + kValueLanes];
  alignas(64) std::byte spare_[kIntRun + kIntChunk];
  alignas(64) float harmless_[kIntRun];
};

// Number of blocks whose scales are computed together: as many as fit a run.
inline std::size_t blocks_per_group(std::size_t block_size) {
  return block_size <= kIntRun / 16 ? 16 : block_size <= kIntRun / 8 ? 8 : block_size <= kIntRun / 4 ? 4 : 1;
}

template <class Store, class Rounding>
HWY_INLINE void encode_groups(BlockIntFormat format, const float* source, std::size_t n, std::byte* target,
                              const RandomStream* random) {
  const std::size_t blocks = blocks_per_group(format.block_size);
  const std::size_t elements = blocks * format.block_size;
  GroupScales scales(format, Rounding::kStochastic);
  GroupEncoder<Store, Rounding> encoder(format, source, n, target, random);
  BlockGroup groups[2];
  BlockGroup* group = &groups[0];
  BlockGroup* next = &groups[1];
  if (n > 0) scales.make(source, 0, std::min(n, elements), target, *group);
  for (std::byte* to = target; group->begin < n; std::swap(group, next)) {
    to += blocks * kBlockScaleBytes;
    if (group->end < n) {
      scales.make(source, group->end, std::min(n, group->end + elements), to, *next);
    } else {
      next->begin = n;
    }
    encoder.encode(*group);
  }
}
#endif

// ---- Blocks of any size: packs each integer from a byte.

template <class Rounding>
class RaggedEncoder {
 public:
  HWY_INLINE RaggedEncoder(BlockIntFormat format, const RandomStream* random)
      : format_(format), scales_(format, Rounding::kStochastic), rounding_(random) {}

  HWY_INLINE void encode(const float* source, std::size_t n, std::byte* target) {
    const auto* const limit = reinterpret_cast<const std::uint8_t*>(target + block_int_encoded_bytes(format_, n));
    auto* packed = reinterpret_cast<std::uint8_t*>(target + block_int_scale_bytes(format_, n));
    for (std::size_t begin = 0; begin < n; begin += kIntRun) {
      const std::size_t count = std::min(kIntRun, n - begin);
      rounding_.begin(begin, count);
      fill_codes(source, begin, begin + count, n, target);
      if (format_.bits == 8) {
        std::memcpy(packed, codes_, count);
      } else {
        std::memset(codes_ + count, 0, kCodesPerVector);
        pack_codes(format_.bits, codes_, count, packed, limit);
      }
      packed += kIntRun / 8 * static_cast<std::size_t>(format_.bits);
    }
  }

 private:
  HWY_INLINE void fill_codes(const float* source, std::size_t begin, std::size_t end, std::size_t n,
                             std::byte* scales) {
    for (std::size_t at = begin; at < end;) {
      const std::size_t block = at / format_.block_size;
      std::byte* const scale = scales + block * kBlockScaleBytes;
      if (at == block * format_.block_size) {
        scales_.make(source, at, std::min<std::size_t>(n, at + format_.block_size), scale, group_);
      }
      const std::size_t stop = std::min(end, group_.end);
      const float* from = source + at;
      if (!group_.plain) {
        make_harmless(format_, scale, from, stop - at, harmless_);
        from = harmless_;
      }
      encode_run(from, stop - at, at - begin);
      at = stop;
    }
  }

  HWY_INLINE void encode_run(const float* from, std::size_t n, std::size_t at) {
    const ValueTag d;
    const hn::Rebind<std::uint8_t, ValueTag> bytes;
    const Values inverse = hn::Set(d, group_.inverses[0]);
    const auto mask = hn::Set(UnsignedTag(), (1u << format_.bits) - 1);
    const auto codes_of = [&](Values v, std::size_t index) HWY_ATTR {
      const Integers integers = rounding_.one(hn::Mul(v, inverse), index);
      return hn::TruncateTo(bytes, hn::And(hn::BitCast(UnsignedTag(), integers), mask));
    };
    std::size_t i = 0;
    for (; i + kValueLanes <= n; i += kValueLanes) {
      hn::StoreU(codes_of(hn::LoadU(d, from + i), at + i), bytes, codes_ + at + i);
    }
    if (i < n) hn::StoreU(codes_of(load_first(from + i, n - i), at + i), bytes, codes_ + at + i);
  }

  const BlockIntFormat format_;
  GroupScales scales_;
  Rounding rounding_;
  BlockGroup group_;
  alignas(64) std::uint8_t codes_[kIntRun + kCodesPerVector];
  alignas(64) float harmless_[kIntRun];
};

// ----

template <class Rounding>
HWY_INLINE void encode_slice(BlockIntFormat format, const float* source, std::size_t n, std::byte* target,
                             const RandomStream* random) {
#if HWY_ARCH_X86
  if (whole_units(format)) {
    if (format.bits == 8) return encode_groups<ByteStore, Rounding>(format, source, n, target, random);
#if QCCL_HAVE_BIT_WINDOWS
    if (format.bits == 4) return encode_groups<NibbleStore, Rounding>(format, source, n, target, random);
    return encode_groups<BitStore, Rounding>(format, source, n, target, random);
#endif
  }
#endif
  RaggedEncoder<Rounding>(format, random).encode(source, n, target);
}

void block_int_encode(BlockIntFormat format, const float* source, std::size_t n, std::byte* target,
                      const RandomStream* random) {
  if (random == nullptr) return encode_slice<NearestIntegers>(format, source, n, target, random);
  encode_slice<StochasticIntegers>(format, source, n, target, random);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
