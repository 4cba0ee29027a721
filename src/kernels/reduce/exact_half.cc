#include "kernels/reduce/exact_half.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/exact_half.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"
#if !QCCL_SCALAR
#include "kernels/lanes/half-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// Converts elements [begin, end) with the reference.
HWY_INLINE void widen_each(DataType type, float* target, const std::uint16_t* source, std::size_t begin,
                           std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    std::uint16_t half;
    std::memcpy(&half, source + i, sizeof(half));
    const std::uint32_t bits = reference::widen_exactly(type, half);
    std::memcpy(target + i, &bits, sizeof(bits));
  }
}

HWY_INLINE void narrow_each(DataType type, std::uint16_t* target, const float* source, std::size_t begin,
                            std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, source + i, sizeof(bits));
    const std::uint16_t half = reference::narrow_exactly(type, bits);
    std::memcpy(target + i, &half, sizeof(half));
  }
}

#if QCCL_SCALAR

void widen_exactly(DataType type, float* target, const void* source, std::size_t n) {
  widen_each(type, target, static_cast<const std::uint16_t*>(source), 0, n);
}

void narrow_exactly(DataType type, void* target, const float* source, std::size_t n) {
  narrow_each(type, static_cast<std::uint16_t*>(target), source, 0, n);
}

#else

// Converts Lanes(FloatTag) values; a vector with a NaN goes through the reference.
template <class Lanes>
HWY_INLINE std::size_t narrow_vectors(DataType type, std::uint16_t* target, const float* source, std::size_t n) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const Floats values = hn::LoadU(d, source + i);
    Lanes::store(values, target + i);
    if (!hn::AllFalse(d, hn::IsNaN(values))) narrow_each(type, target, source, i, i + lanes);
  }
  return i;
}

HWY_INLINE Floats widened_float16(const std::uint16_t* from) {
  const BitsTag d;
  const Bits half = hn::PromoteTo(d, hn::LoadU(HalfTag(), from));
  const Bits magnitude = hn::And(half, hn::Set(d, 0x7FFFu));
  const Bits sign = hn::ShiftLeft<16>(hn::Sub(half, magnitude));
  const Bits nan = hn::Or(sign, hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(d, 224u << 23)));
  return hn::BitCast(FloatTag(),
                     hn::IfThenElse(above(magnitude, 0x7C00), nan, hn::BitCast(d, Float16Lanes::load(from))));
}

void widen_exactly(DataType type, float* target, const void* source, std::size_t n) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* from = static_cast<const std::uint16_t*>(source);
  std::size_t i = 0;
  if (type == DataType::float16) {
    for (; i + lanes <= n; i += lanes) hn::StoreU(widened_float16(from + i), d, target + i);
  } else {
    for (; i + lanes <= n; i += lanes) hn::StoreU(BFloat16Lanes::load(from + i), d, target + i);
  }
  widen_each(type, target, from, i, n);
}

void narrow_exactly(DataType type, void* target, const float* source, std::size_t n) {
  auto* to = static_cast<std::uint16_t*>(target);
  const std::size_t done = type == DataType::float16 ? narrow_vectors<Float16Lanes>(type, to, source, n)
                                                     : narrow_vectors<BFloat16Lanes>(type, to, source, n);
  narrow_each(type, to, source, done, n);
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {

QCCL_KERNEL(void, widen_exactly, (DataType type, float* target, const void* source, std::size_t n),
            (type, target, source, n))
QCCL_KERNEL(void, narrow_exactly, (DataType type, void* target, const float* source, std::size_t n),
            (type, target, source, n))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
