#include "kernels/reduce/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/reduce.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "kernels/reduce/reduce_scalar-inl.h"
#else
#include "kernels/reduce/reduce-inl.h"
#endif

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(reduce);
HWY_EXPORT(widen);
HWY_EXPORT(reduce_widened);
HWY_EXPORT(narrow);
HWY_EXPORT(divide);
HWY_EXPORT(scale);

}  // namespace

void reduce(DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  QCCL_DISPATCH(reduce)(type, op, target, a, b, n);
}

void widen(DataType type, float* target, const void* source, std::size_t n) {
  QCCL_DISPATCH(widen)(type, target, source, n);
}

void reduce_widened(DataType type, ReduceOp op, float* target, const float* a, const void* b, std::size_t n) {
  QCCL_DISPATCH(reduce_widened)(type, op, target, a, b, n);
}

void narrow(DataType type, void* target, const float* source, std::size_t n) {
  QCCL_DISPATCH(narrow)(type, target, source, n);
}

void divide(DataType type, void* data, double divisor, std::size_t n) { QCCL_DISPATCH(divide)(type, data, divisor, n); }

void scale(DataType type, void* target, const void* source, double factor, std::size_t n) {
  QCCL_DISPATCH(scale)(type, target, source, factor, n);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
