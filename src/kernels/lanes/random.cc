#include "kernels/lanes/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lanes/random.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "kernels/lanes/random_scalar-inl.h"
#else
#include "kernels/lanes/random-inl.h"
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
