#include "kernels/onebit/onebit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/onebit/onebit.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "kernels/onebit/onebit_scalar-inl.h"
#else
#include "kernels/onebit/onebit-inl.h"
#endif

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(onebit_pack);
HWY_EXPORT(onebit_subtract);
HWY_EXPORT(onebit_sum);
HWY_EXPORT(onebit_expand);

}  // namespace

double onebit_pack(const float* input, std::size_t inputs, float* error, std::size_t n, std::byte* signs) {
  return QCCL_DISPATCH(onebit_pack)(input, inputs, error, n, signs);
}

void onebit_subtract(float scale, float* values, std::size_t n) { QCCL_DISPATCH(onebit_subtract)(scale, values, n); }

double onebit_sum(const SignedPart* parts, std::size_t part_count, float* error, std::size_t n, std::byte* signs) {
  return QCCL_DISPATCH(onebit_sum)(parts, part_count, error, n, signs);
}

void onebit_expand(SignedPart part, float* target, std::size_t n, bool past_cache) {
  QCCL_DISPATCH(onebit_expand)(part, target, n, past_cache);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
