#include "kernels/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/random.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "kernels/random_scalar-inl.h"
#else
#include "kernels/random-inl.h"
#endif

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(random_bytes);

}  // namespace

void random_bytes(const RandomStream& stream, std::size_t n, std::uint8_t* target) {
  QCCL_DISPATCH(random_bytes)(stream, n, target);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
