#include "kernels/minmax/minmax.h"

#include "kernels/minmax/minmax_double.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/minmax/minmax.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "kernels/minmax/minmax_scalar-inl.h"
#else
#include "kernels/minmax/minmax_decode-inl.h"
#include "kernels/minmax/minmax_encode-inl.h"
#endif

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(minmax_encode);
HWY_EXPORT(minmax_decode);
HWY_EXPORT(minmax_decode_add);

bool in_double(MinmaxFormat format) { return format.bits > 8 && format.bits != 16; }

}  // namespace

void minmax_encode(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                   const RandomStream* random) {
  if (in_double(format)) return minmax_encode_in_double(format, source, n, target, random);
  QCCL_DISPATCH(minmax_encode)(format, source, n, target, random);
}

void minmax_decode(MinmaxFormat format, const std::byte* source, float* target, std::size_t n) {
  if (in_double(format)) return minmax_decode_in_double(format, source, target, n);
  QCCL_DISPATCH(minmax_decode)(format, source, target, n);
}

void minmax_decode_add(MinmaxFormat format, const std::byte* source, const float* addend, float* target,
                       std::size_t n) {
  if (in_double(format)) return minmax_decode_add_in_double(format, source, addend, target, n);
  QCCL_DISPATCH(minmax_decode_add)(format, source, addend, target, n);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
