#include "kernels/grid/grid.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/grid/grid.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/grid/grid_entropy.h"
#include "kernels/grid/grid_reference.h"
#include "kernels/simd_dispatch.h"

#include "kernels/grid/grid_slices-inl.h"

#if HWY_ONCE
namespace qccl::kernels {

QCCL_KERNEL(std::size_t, grid_encode,
            (const GridFormat& format, const float* source, std::size_t n, std::byte* target,
             const RandomStream* random),
            (format, source, n, target, random))
QCCL_KERNEL(bool, grid_decode,
            (const GridFormat& format, const std::byte* source, std::size_t bytes, const float* addend, float* target,
             std::size_t n),
            (format, source, bytes, addend, target, n))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
