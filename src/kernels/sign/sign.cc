#include "kernels/sign/sign.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sign/sign.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "kernels/sign/sign_scalar-inl.h"
#else
#include "kernels/sign/sign_decode-inl.h"
#include "kernels/sign/sign_encode-inl.h"
#endif

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(sign_encode);
HWY_EXPORT(sign_encode_with_residual);
HWY_EXPORT(sign_decode);
HWY_EXPORT(sign_decode_add);

}  // namespace

void sign_encode(SignFormat format, const float* source, std::size_t n, std::byte* target) {
  QCCL_DISPATCH(sign_encode)(format, source, n, target);
}

void sign_encode_with_residual(SignFormat format, const float* source, std::size_t n, std::byte* target, float factor,
                               float* residual) {
  QCCL_DISPATCH(sign_encode_with_residual)(format, source, n, target, factor, residual);
}

void sign_decode(SignFormat format, const std::byte* source, float* target, std::size_t n) {
  QCCL_DISPATCH(sign_decode)(format, source, target, n);
}

void sign_decode_add(SignFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  QCCL_DISPATCH(sign_decode_add)(format, source, addend, target, n);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
