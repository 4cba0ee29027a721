#include "kernels/reduce/residual.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/residual.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/reduce/residual_reference.h"
#include "kernels/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void keep_residual(const float* value, const float* sent, float factor, float* residual, std::size_t n) {
  reference::keep_residual(value, sent, factor, residual, 0, n);
}

#else

namespace hn = hwy::HWY_NAMESPACE;

void keep_residual(const float* value, const float* sent, float factor, float* residual, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto left = hn::Mul(hn::Sub(hn::LoadU(d, value + i), hn::LoadU(d, sent + i)), hn::Set(d, factor));
    const auto before = hn::LoadU(d, residual + i);
    hn::StoreU(hn::IfThenElse(hn::IsFinite(left), left, before), d, residual + i);
  }
  reference::keep_residual(value, sent, factor, residual, i, n);
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(keep_residual);

}  // namespace

void keep_residual(const float* value, const float* sent, float factor, float* residual, std::size_t n) {
  QCCL_DISPATCH(keep_residual)(value, sent, factor, residual, n);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
