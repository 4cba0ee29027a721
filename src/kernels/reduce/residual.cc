#include "kernels/reduce/residual.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/residual.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/reduce/reduce_reference.h"
#include "kernels/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// The specification, for elements [begin, end).
HWY_INLINE void keep_each(const float* value, const float* sent, float factor, float* residual, std::size_t begin,
                          std::size_t end) {
  using reference::load_at;
  for (std::size_t i = begin; i < end; ++i) {
    const float left = (load_at<float>(value, i) - load_at<float>(sent, i)) * factor;
    if (std::isfinite(left)) reference::store_at(residual, i, left);
  }
}

#if QCCL_SCALAR

void keep_residual(const float* value, const float* sent, float factor, float* residual, std::size_t n) {
  keep_each(value, sent, factor, residual, 0, n);
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
  keep_each(value, sent, factor, residual, i, n);
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {
QCCL_KERNEL(void, keep_residual, (const float* value, const float* sent, float factor, float* residual, std::size_t n),
            (value, sent, factor, residual, n))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
