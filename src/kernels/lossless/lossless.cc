#include "kernels/lossless/lossless.h"

// Compressing the bytes of a vector by a mask, and expanding them, is most of the work.
#define HWY_WANT_AVX3_DL 1

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lossless/lossless.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "kernels/lossless/lossless_scalar-inl.h"
#else
#include "kernels/lossless/lossless-inl.h"
#endif

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(lossless_encode);
HWY_EXPORT(lossless_decode);
HWY_EXPORT(lossless_decode_add);

}  // namespace

std::size_t lossless_encode(const float* source, std::size_t n, std::byte* target) {
  return QCCL_DISPATCH(lossless_encode)(source, n, target);
}

bool lossless_decode(const std::byte* source, std::size_t bytes, float* target, std::size_t n) {
  return QCCL_DISPATCH(lossless_decode)(source, bytes, target, n);
}

bool lossless_decode_add(const std::byte* source, std::size_t bytes, const float* addend, float* target,
                         std::size_t n) {
  return QCCL_DISPATCH(lossless_decode_add)(source, bytes, addend, target, n);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
