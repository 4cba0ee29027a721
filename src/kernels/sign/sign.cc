#include "kernels/sign/sign.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sign/sign.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/reduce/reduce_reference.h"
#include "kernels/sign/sign_reference.h"
#include "kernels/simd_dispatch.h"
#if !QCCL_SCALAR
#include "kernels/lanes/value_lanes-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

#if QCCL_SCALAR

void sign_encode(SignFormat format, const float* source, std::size_t n, std::byte* target, float factor,
                 float* residual) {
  std::byte* const signs = target + sign_scale_bytes(format, n);
  std::fill_n(signs, sign_bit_bytes(n), std::byte{0});
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, target += kSignScaleBytes) {
    const std::size_t count = std::min<std::size_t>(format.bucket_size, n - begin);
    const float* const bucket = source + begin;
    const float scale = format.norm_scale
                            ? reference::norm_scale(reference::square_sum(bucket, count), count)
                            : reference::mean_scale(reference::magnitude_sum(bucket, count), bucket, count);
    std::memcpy(target, &scale, sizeof(scale));
    for (std::size_t i = begin; i < begin + count; ++i) {
      const bool negative = source[i] < 0;
      if (negative) signs[i / 8] |= static_cast<std::byte>(1u << (i % 8));
      const float left = (source[i] - reference::signed_scale(negative, scale)) * factor;
      if (residual != nullptr && std::isfinite(left)) residual[i] = left;
    }
  }
}

void sign_decode(SignFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  const std::byte* const signs = source + sign_scale_bytes(format, n);
  for (std::size_t i = 0; i < n; ++i) {
    const float scale = reference::read_sign_scale(source + i / format.bucket_size * kSignScaleBytes);
    reference::finish(reference::signed_scale(reference::is_negative(signs, i), scale), addend, target, i);
  }
}

#else

// Works in groups of 64 elements: the number of lanes of sums, and their signs are one word.

inline constexpr std::size_t kSignGroup = reference::kMagnitudeLanes;
inline constexpr std::size_t kGroupVectors = kSignGroup / kValueLanes;

// Adds all lanes to the first, halving.
template <class D>
HWY_INLINE hn::TFromD<D> sum_of_vector(D d, hn::Vec<D> v) {
  if constexpr (sizeof(v) > 16) {
    const hn::Half<D> half;
    return sum_of_vector(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::GetLane(hn::Add(v, hn::Shuffle01(v)));
  } else {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  }
}

// The same for the lanes of several vectors, which are overwritten.
template <class D, std::size_t kCount>
HWY_INLINE hn::TFromD<D> sum_of_vectors(D d, hn::Vec<D> (&vectors)[kCount]) {
  HWY_UNROLL(4)
  for (std::size_t width = kCount / 2; width > 0; width /= 2) {
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < width; ++i) vectors[i] = hn::Add(vectors[i], vectors[i + width]);
  }
  return sum_of_vector(d, vectors[0]);
}

// ---- Sums of a block: add() takes vector `v` of a group, total() ends it.

class MagnitudeSum {
 public:
  HWY_INLINE MagnitudeSum() {
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kGroupVectors; ++i) lanes_[i] = hn::Zero(ValueTag());
  }
  HWY_INLINE void add(std::size_t v, Values x) { lanes_[v] = hn::Add(lanes_[v], hn::Abs(x)); }
  HWY_INLINE double total() { return sum_of_vectors(ValueTag(), lanes_); }

 private:
  Values lanes_[kGroupVectors];
};

class SquareSum {
 public:
  HWY_INLINE SquareSum() {
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kVectors; ++i) lanes_[i] = hn::Zero(SquareTag());
  }
  HWY_INLINE void add(std::size_t v, Values x) {
    const hn::Half<ValueTag> half;
    const SquareTag d;
    const std::size_t at = 2 * v % kVectors;
    const Squares lower = hn::PromoteTo(d, hn::LowerHalf(half, x));
    const Squares upper = hn::PromoteTo(d, hn::UpperHalf(half, x));
    lanes_[at] = hn::Add(lanes_[at], hn::Mul(lower, lower));
    lanes_[at + 1] = hn::Add(lanes_[at + 1], hn::Mul(upper, upper));
  }
  HWY_INLINE double total() { return sum_of_vectors(SquareTag(), lanes_); }

 private:
  using SquareTag = hn::Repartition<double, ValueTag>;
  using Squares = hn::Vec<SquareTag>;
  static constexpr std::size_t kVectors = 2 * reference::kSignSquareLanes / kValueLanes;

  Squares lanes_[kVectors];
};

struct NoSum {
  HWY_INLINE void add(std::size_t, Values) {}
  HWY_INLINE double total() { return 0; }
};

// ---- Signs and sums.

// Adds a group to `sum` and returns its signs.
template <class Sum>
HWY_INLINE std::uint64_t take_group(const float* from, Sum& sum) {
  const ValueTag d;
  std::uint64_t negative = 0;
  HWY_UNROLL(16)
  for (std::size_t v = 0; v < kGroupVectors; ++v) {
    const Values x = hn::LoadU(d, from + v * kValueLanes);
    sum.add(v, x);
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, hn::Lt(x, hn::Zero(d)), bits);
    std::uint16_t part;
    std::memcpy(&part, bits, sizeof(part));
    negative |= std::uint64_t{part} << (v * kValueLanes);
  }
  return negative;
}

// Processes up to a block: writes its signs, unless `signs` is null, and returns the sum. Zeros beyond its end change
// neither.
template <class Sum>
HWY_INLINE double take_block(const float* v, std::size_t n, std::byte* signs) {
  Sum sum;
  std::size_t i = 0;
  for (; i + kSignGroup <= n; i += kSignGroup) {
    const std::uint64_t negative = take_group(v + i, sum);
    if (signs != nullptr) std::memcpy(signs + i / 8, &negative, sizeof(negative));
  }
  if (i < n) {
    alignas(64) float padded[kSignGroup] = {};
    std::memcpy(padded, v + i, (n - i) * sizeof(float));
    const std::uint64_t negative = take_group(padded, sum);
    if (signs != nullptr) std::memcpy(signs + i / 8, &negative, sign_bit_bytes(n - i));
  }
  return sum.total();
}

template <class Sum>
HWY_INLINE double take_run(const float* v, std::size_t n, std::byte* signs) {
  double total = 0;
  for (std::size_t block = 0; block < n; block += reference::kSignBlock) {
    const std::size_t count = std::min(n - block, reference::kSignBlock);
    total += take_block<Sum>(v + block, count, signs != nullptr ? signs + block / 8 : nullptr);
  }
  return total;
}

// Returns a bucket's scale; also writes its signs, unless `signs` is null.
HWY_INLINE float take_bucket(bool norm_scale, const float* v, std::size_t n, std::byte* signs) {
  if (norm_scale) return reference::norm_scale(take_run<SquareSum>(v, n, signs), n);
  return reference::mean_scale(take_run<MagnitudeSum>(v, n, signs), v, n);
}

struct Bucket {
  std::size_t begin = 0, end = 0;
  float scale = 0;
};

// Calls keep(bucket) for each bucket whose scale is a number, one bucket late. The chain of additions and the division
// that the scale waits for then overlap with the bucket before.
template <class Keep>
HWY_NOINLINE void encode_buckets(SignFormat format, const float* source, std::size_t n, std::byte* target, Keep keep) {
  std::byte* const signs = target + sign_scale_bytes(format, n);
  const bool whole_bytes = format.bucket_size % 8 == 0;
  if (!whole_bytes) take_run<NoSum>(source, n, signs);
  Bucket last;
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, target += kSignScaleBytes) {
    Bucket bucket{begin, std::min<std::size_t>(n, begin + format.bucket_size)};
    std::byte* const bucket_signs = whole_bytes ? signs + begin / 8 : nullptr;
    bucket.scale = take_bucket(format.norm_scale, source + begin, bucket.end - begin, bucket_signs);
    std::memcpy(target, &bucket.scale, sizeof(bucket.scale));
    if (last.scale == last.scale) keep(last);
    last = bucket;
  }
  if (last.scale == last.scale) keep(last);
}

// ---- Residuals.

struct KeepResidual {
  const float* source;
  float factor;
  float* residual;

  // With a factor of 1 every residual is finite: x and y have the same sign.
  HWY_INLINE void operator()(const Bucket& bucket) const {
    const ValueTag d;
    const Values factors = hn::Set(d, factor);
    if (factor == 1.0f) {
      each(bucket, [](Values left, std::size_t) HWY_ATTR { return left; });
    } else {
      each(bucket, [=, this](Values left, std::size_t i) HWY_ATTR {
        left = hn::Mul(left, factors);
        return hn::IfThenElse(hn::IsFinite(left), left, hn::LoadU(d, residual + i));
      });
    }
  }

 private:
  // Calls made(x - y, i) for vectors; it returns the residual from i on.
  template <class Made>
  HWY_INLINE void each(const Bucket& bucket, Made made) const {
    const ValueTag d;
    const Values plus = hn::Set(d, bucket.scale), minus = hn::Set(d, -bucket.scale);
    const auto left = [=, this](std::size_t i) HWY_ATTR {
      const Values x = hn::LoadU(d, source + i);
      return made(hn::Sub(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), minus, plus)), i);
    };
    std::size_t i = bucket.begin;
    for (; i + 4 * kValueLanes <= bucket.end; i += 4 * kValueLanes) {
      for (std::size_t at = 0; at < 4 * kValueLanes; at += 16) hwy::Prefetch(residual + i + kFetchAhead + at);
      HWY_UNROLL(4)
      for (std::size_t v = 0; v < 4; ++v) hn::StoreU(left(i + v * kValueLanes), d, residual + i + v * kValueLanes);
    }
    for (; i < bucket.end; ++i) {
      const float rest = (source[i] - reference::signed_scale(source[i] < 0, bucket.scale)) * factor;
      if (std::isfinite(rest)) residual[i] = rest;
    }
  }
};

void sign_encode(SignFormat format, const float* source, std::size_t n, std::byte* target, float factor,
                 float* residual) {
  if (residual == nullptr) return encode_buckets(format, source, n, target, [](const Bucket&) {});
  encode_buckets(format, source, n, target, KeepResidual{source, factor, residual});
}

// ---- Decoding.

inline constexpr std::size_t kSignStep = 4 * kValueLanes;
inline constexpr std::size_t kLongestBucket = 65536;  // longest bucket that is copied to align it

// Entry e has only bit e set.
struct StepBits {
  alignas(64) std::uint32_t of[32];
};
constexpr StepBits step_bits() {
  StepBits bits{};
  for (unsigned e = 0; e < 32; ++e) bits.of[e] = 1u << e;
  return bits;
}
inline constexpr StepBits kStepBits = step_bits();

// Decodes a run of one scale, whose signs begin at a byte boundary, to target[begin] and on.
template <class Finish>
HWY_INLINE void decode_run(const std::byte* signs, float scale, std::size_t begin, std::size_t n, float* target,
                           Finish& finish) {
  const ValueTag d;
  const UnsignedTag u;
  const Values plus = hn::Set(d, scale);
  const Values minus = hn::Set(d, reference::signed_scale(true, scale));
  std::size_t i = 0;
  for (; i + kSignStep <= n; i += kSignStep) {
    std::uint64_t word = 0;
    std::memcpy(&word, signs + i / 8, kSignStep / 8);
    const auto values = [&](std::size_t v) HWY_ATTR {
      const std::size_t first = v * kValueLanes;
      const auto bits = hn::Set(u, static_cast<std::uint32_t>(word >> (first / 32 * 32)));
      const auto negative = hn::TestBit(bits, hn::Load(u, kStepBits.of + first % 32));
      return hn::IfThenElse(hn::RebindMask(d, negative), minus, plus);
    };
    finish.store(values(0), values(1), values(2), values(3), target, begin + i);
  }
  for (; i < n; ++i) {
    finish.store(reference::signed_scale(reference::is_negative(signs, i), scale), target, begin + i);
  }
}

// Shifts the signs from `first` on to a byte boundary. Reads no byte that has none of them.
inline void align_signs(const std::byte* signs, std::size_t first, std::size_t n, std::byte* aligned) {
  const std::byte* const from = signs + first / 8;
  const auto shift = static_cast<int>(first % 8);
  const std::size_t have = sign_bit_bytes(first % 8 + n);
  for (std::size_t i = 0; i + 1 < have; ++i) aligned[i] = from[i] >> shift | from[i + 1] << (8 - shift);
  aligned[have - 1] = from[have - 1] >> shift;
}

template <class Finish>
HWY_NOINLINE void decode_buckets(SignFormat format, const std::byte* source, const float* addend, float* target,
                                 std::size_t n) {
  Finish finish(addend);
  const std::byte* const signs = source + sign_scale_bytes(format, n);
  alignas(64) std::byte aligned[kLongestBucket / 8 + 2];
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, source += kSignScaleBytes) {
    const std::size_t count = std::min<std::size_t>(format.bucket_size, n - begin);
    const float scale = reference::read_sign_scale(source);
    const std::byte* bucket_signs = signs + begin / 8;
    if (begin % 8 != 0) {
      align_signs(signs, begin, count, aligned);
      bucket_signs = aligned;
    }
    decode_run(bucket_signs, scale, begin, count, target, finish);
    finish.end(target, begin, begin + count);
  }
}

void sign_decode(SignFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  if (addend == nullptr) return decode_buckets<Assign>(format, source, addend, target, n);
  decode_buckets<AddTo>(format, source, addend, target, n);
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {

QCCL_KERNEL(void, sign_encode,
            (SignFormat format, const float* source, std::size_t n, std::byte* target, float factor, float* residual),
            (format, source, n, target, factor, residual))
QCCL_KERNEL(void, sign_decode,
            (SignFormat format, const std::byte* source, const float* addend, float* target, std::size_t n),
            (format, source, addend, target, n))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
