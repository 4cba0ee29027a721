#include "kernels/reduce/exact_half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/exact_half.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/reduce/exact_half-inl.h"
#include "kernels/simd_dispatch.h"

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(widen_exactly);
HWY_EXPORT(narrow_exactly);

}  // namespace

void widen_exactly(DataType type, float* target, const void* source, std::size_t n) {
  QCCL_DISPATCH(widen_exactly)(type, target, source, n);
}

void narrow_exactly(DataType type, void* target, const float* source, std::size_t n) {
  QCCL_DISPATCH(narrow_exactly)(type, target, source, n);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
