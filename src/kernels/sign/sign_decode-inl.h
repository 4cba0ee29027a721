// sign_decode() and sign_decode_add() in vectors. Per target.

#if defined(QCCL_KERNELS_SIGN_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_SIGN_DECODE_INL_H_
#undef QCCL_KERNELS_SIGN_DECODE_INL_H_
#else
#define QCCL_KERNELS_SIGN_DECODE_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/lanes/value_lanes-inl.h"
#include "kernels/sign/sign_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

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
HWY_INLINE void decode_buckets(SignFormat format, const std::byte* source, std::size_t n, float* target,
                               Finish finish) {
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

void sign_decode(SignFormat format, const std::byte* source, float* target, std::size_t n) {
  decode_buckets(format, source, n, target, Assign());
}

void sign_decode_add(SignFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  decode_buckets(format, source, n, target, AddTo(addend));
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
