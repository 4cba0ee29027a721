#include "kernels/topk/topk.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/topk/topk.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "kernels/topk/topk_scalar-inl.h"
#else
#include "kernels/topk/topk-inl.h"
#endif

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(topk_encode);
HWY_EXPORT(topk_decode);
HWY_EXPORT(topk_decode_add);

}  // namespace

void topk_encode(TopkFormat format, const float* source, std::size_t n, std::byte* target) {
  QCCL_DISPATCH(topk_encode)(format, source, n, target);
}

bool topk_decode(TopkFormat format, const std::byte* source, float* target, std::size_t n) {
  return QCCL_DISPATCH(topk_decode)(format, source, target, n);
}

bool topk_decode_add(TopkFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  return QCCL_DISPATCH(topk_decode_add)(format, source, addend, target, n);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
