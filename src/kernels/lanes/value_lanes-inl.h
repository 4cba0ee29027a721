// Vectors of float32 and of integers of the same lanes, and the destinations of decoded values. Per target.

#if defined(QCCL_KERNELS_VALUE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_VALUE_LANES_INL_H_
#undef QCCL_KERNELS_VALUE_LANES_INL_H_
#else
#define QCCL_KERNELS_VALUE_LANES_INL_H_
#endif

#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/lanes/value.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The x86 intrinsic of that name for the target's vectors.
#undef QCCL_X86
#if HWY_MAX_BYTES == 64
#define QCCL_X86(operation) _mm512_##operation
#elif HWY_MAX_BYTES == 32
#define QCCL_X86(operation) _mm256_##operation
#else
#define QCCL_X86(operation) _mm_##operation
#endif

using ValueTag = hn::ScalableTag<float>;
using IntegerTag = hn::RebindToSigned<ValueTag>;
using UnsignedTag = hn::RebindToUnsigned<ValueTag>;
using Values = hn::Vec<ValueTag>;
using Integers = hn::Vec<IntegerTag>;
inline constexpr std::size_t kValueLanes = sizeof(Values) / sizeof(float);

// Integers of values in the range of int32, without the checks for others: truncate() rounds towards zero,
// round_lanes() to nearest even.
#if HWY_ARCH_X86
HWY_INLINE Integers truncate(Values v) { return Integers{QCCL_X86(cvttps_epi32)(v.raw)}; }
HWY_INLINE Integers round_lanes(Values v) { return Integers{QCCL_X86(cvtps_epi32)(v.raw)}; }
#else
HWY_INLINE Integers truncate(Values v) { return hn::ConvertTo(IntegerTag(), v); }
HWY_INLINE Integers round_lanes(Values v) { return hn::NearestInt(v); }
#endif

// The first `n` values, fewer than a vector has, then zeros.
HWY_INLINE Values load_first(const float* from, std::size_t n) {
  alignas(64) float padded[kValueLanes] = {};
  std::memcpy(padded, from, n * sizeof(float));
  return hn::Load(ValueTag(), padded);
}

// Indices that bring the three lower bytes of each four in sixteen to the front, and back.
alignas(16) inline constexpr std::uint8_t kCloseThrees[16] = {0,  1,  2,  4,  5,    6,    8,    9,
                                                              10, 12, 13, 14, 0x80, 0x80, 0x80, 0x80};
alignas(16) inline constexpr std::uint8_t kOpenThrees[16] = {0, 1, 2, 0x80, 3, 4,  5,  0x80,
                                                             6, 7, 8, 0x80, 9, 10, 11, 0x80};

// Four vectors of 32-bit integers to one of bytes, on x86. Packing works within each 128 bits: its result is in
// "packed order", and in_order() restores the element order.

#if HWY_ARCH_X86
using SignedBytes = hn::ScalableTag<std::int8_t>;
using UnsignedBytes = hn::ScalableTag<std::uint8_t>;
using SignedWords = hn::ScalableTag<std::int16_t>;
using ByteCodesVector = hn::Vec<UnsignedBytes>;
using WordVector = hn::Vec<SignedWords>;

HWY_INLINE WordVector pack_words(Integers a, Integers b) { return WordVector{QCCL_X86(packs_epi32)(a.raw, b.raw)}; }
HWY_INLINE ByteCodesVector pack_unsigned(WordVector a, WordVector b) {
  return ByteCodesVector{QCCL_X86(packus_epi16)(a.raw, b.raw)};
}
HWY_INLINE ByteCodesVector pack_signed(WordVector a, WordVector b) {
  return ByteCodesVector{QCCL_X86(packs_epi16)(a.raw, b.raw)};
}

// in_packed_order() is the reverse of in_order().
#if HWY_MAX_BYTES == 64
HWY_INLINE ByteCodesVector in_order(ByteCodesVector packed) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return ByteCodesVector{_mm512_permutexvar_epi32(order, packed.raw)};
}
HWY_INLINE ByteCodesVector in_packed_order(ByteCodesVector ordered) { return in_order(ordered); }
#elif HWY_MAX_BYTES == 32
HWY_INLINE ByteCodesVector in_order(ByteCodesVector packed) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return ByteCodesVector{_mm256_permutevar8x32_epi32(packed.raw, order)};
}
HWY_INLINE ByteCodesVector in_packed_order(ByteCodesVector ordered) {
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  return ByteCodesVector{_mm256_permutevar8x32_epi32(ordered.raw, order)};
}
#else
HWY_INLINE ByteCodesVector in_order(ByteCodesVector packed) { return packed; }
HWY_INLINE ByteCodesVector in_packed_order(ByteCodesVector ordered) { return ordered; }
#endif
#endif

// Distance of prefetches ahead of writes, in elements: a line that comes from L2 only when its store retires delays all
// later stores.
inline constexpr std::size_t kFetchAhead = 512;

// Destinations of decoded values: store() takes a vector, four vectors or one value for target[index] and on. Assign
// stores the values unchanged.
struct Assign {
  explicit Assign(const float* /*addend*/ = nullptr) {}
  HWY_INLINE void store(Values y0, Values y1, Values y2, Values y3, float* target, std::size_t index) {
    const ValueTag d;
    float* const to = target + index;
    for (std::size_t i = 0; i < 4 * kValueLanes; i += 16) hwy::Prefetch(to + kFetchAhead + i);
    hn::StoreU(y0, d, to);
    hn::StoreU(y1, d, to + kValueLanes);
    hn::StoreU(y2, d, to + 2 * kValueLanes);
    hn::StoreU(y3, d, to + 3 * kValueLanes);
  }
  HWY_INLINE void store(Values y, float* target, std::size_t index) { hn::StoreU(y, ValueTag(), target + index); }
  HWY_INLINE void store(float y, float* target, std::size_t index) { target[index] = y; }
  HWY_INLINE void end(float*, std::size_t, std::size_t) {}
  // The same for elements counted from `begin` on.
  HWY_INLINE Assign from(std::size_t) const { return *this; }
};

// AddTo stores the sums with the addend; end() makes NaNs in its range canonical. To detect whether any sum may be NaN,
// products of two sums each are added up: a NaN in them persists.
class AddTo {
 public:
  explicit HWY_INLINE AddTo(const float* addend) : addend_(addend) {}

  HWY_INLINE void store(Values y0, Values y1, Values y2, Values y3, float* target, std::size_t index) {
    const ValueTag d;
    const float* const from = addend_ + index;
    const Values sum0 = hn::Add(hn::LoadU(d, from), y0);
    const Values sum1 = hn::Add(hn::LoadU(d, from + kValueLanes), y1);
    const Values sum2 = hn::Add(hn::LoadU(d, from + 2 * kValueLanes), y2);
    const Values sum3 = hn::Add(hn::LoadU(d, from + 3 * kValueLanes), y3);
    first_ = hn::MulAdd(sum0, sum1, first_);
    second_ = hn::MulAdd(sum2, sum3, second_);
    Assign().store(sum0, sum1, sum2, sum3, target, index);
  }
  HWY_INLINE void store(Values y, float* target, std::size_t index) {
    const Values sum = hn::Add(hn::LoadU(ValueTag(), addend_ + index), y);
    first_ = hn::MulAdd(sum, sum, first_);
    hn::StoreU(sum, ValueTag(), target + index);
  }
  HWY_INLINE void store(float y, float* target, std::size_t index) {
    target[index] = reference::canonical(addend_[index] + y);
  }
  HWY_INLINE void end(float* target, std::size_t begin, std::size_t end) {
    if (hn::AllFalse(ValueTag(), hn::IsNaN(hn::Add(first_, second_)))) return;
    for (std::size_t i = begin; i < end; ++i) target[i] = reference::canonical(target[i]);
    *this = AddTo(addend_);
  }
  HWY_INLINE AddTo from(std::size_t begin) const { return AddTo(addend_ + begin); }

 private:
  const float* addend_;
  // 1: products too small for a float then cost nothing, because the sums stay normal.
  Values first_ = hn::Set(ValueTag(), 1.0f);
  Values second_ = hn::Set(ValueTag(), 1.0f);
};

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
