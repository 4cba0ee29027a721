// Vectors of float32 and of integers of the same lanes, and the destinations of decoded values. Per target.

#if defined(QCCL_KERNELS_VALUE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_VALUE_LANES_INL_H_
#undef QCCL_KERNELS_VALUE_LANES_INL_H_
#else
#define QCCL_KERNELS_VALUE_LANES_INL_H_
#endif

#include <cstring>

#include "base/half.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using ValueTag = hn::ScalableTag<float>;
using IntegerTag = hn::RebindToSigned<ValueTag>;
using UnsignedTag = hn::RebindToUnsigned<ValueTag>;
using Values = hn::Vec<ValueTag>;
using Integers = hn::Vec<IntegerTag>;
inline constexpr std::size_t kValueLanes = sizeof(Values) / sizeof(float);

// Integers of values in the range of int32, without the checks for others. truncate() rounds towards zero,
HWY_INLINE Integers truncate(Values v) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
  return Integers{_mm512_cvttps_epi32(v.raw)};
#elif HWY_ARCH_X86 && HWY_MAX_BYTES == 32
  return Integers{_mm256_cvttps_epi32(v.raw)};
#elif HWY_ARCH_X86
  return Integers{_mm_cvttps_epi32(v.raw)};
#else
  return hn::ConvertTo(IntegerTag(), v);
#endif
}

// round_lanes() to nearest even.
HWY_INLINE Integers round_lanes(Values v) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
  return Integers{_mm512_cvtps_epi32(v.raw)};
#elif HWY_ARCH_X86 && HWY_MAX_BYTES == 32
  return Integers{_mm256_cvtps_epi32(v.raw)};
#elif HWY_ARCH_X86
  return Integers{_mm_cvtps_epi32(v.raw)};
#else
  return hn::NearestInt(v);
#endif
}

// The first `n` values, fewer than a vector has, then zeros.
HWY_INLINE Values load_first(const float* from, std::size_t n) {
  alignas(64) float padded[kValueLanes] = {};
  std::memcpy(padded, from, n * sizeof(float));
  return hn::Load(ValueTag(), padded);
}

// Distance of prefetches ahead of writes, in elements: a line that comes from L2 only when its store retires delays all
// later stores.
inline constexpr std::size_t kFetchAhead = 512;

// Destinations of decoded values: store() takes a vector, four vectors or one value for target[index] and on. Assign
// stores the values unchanged.
struct Assign {
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
    const float sum = addend_[index] + y;
    target[index] = sum != sum ? canonical_nan() : sum;
  }
  HWY_INLINE void end(float* target, std::size_t begin, std::size_t end) {
    if (hn::AllFalse(ValueTag(), hn::IsNaN(hn::Add(first_, second_)))) return;
    for (std::size_t i = begin; i < end; ++i) target[i] = target[i] != target[i] ? canonical_nan() : target[i];
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
