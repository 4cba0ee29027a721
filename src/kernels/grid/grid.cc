#include "kernels/grid/grid.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/grid/grid.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/grid/grid_reference.h"
#include "kernels/simd_dispatch.h"

#include "kernels/grid/grid_slices-inl.h"

#if HWY_ONCE
namespace qccl::kernels {

namespace {

// The widest form of a bucket's blocks: |q| <= sqrt(n) / relative, more by the roundings of step and value.
int widest_of(const GridFormat& format) {
  const double most = std::sqrt(static_cast<double>(format.bucket_size)) / double{format.relative} * (1 + 0x1p-7) + 1;
  const auto largest = static_cast<std::int32_t>(std::min(most, double{grid::kLargestInteger}));
  return grid::width_of(grid::form_of(grid::zigzag(largest)));
}

}  // namespace

std::size_t grid_max_bytes(const GridFormat& format, std::size_t n) {
  const std::size_t headers = grid_step_bytes(format, n) + grid_form_bytes(n);
  if (format.is_relative()) return headers + grid::eights(n) * static_cast<std::size_t>(widest_of(format));
  const std::size_t last = n % kGridBlock;
  return headers + std::max((n - last) * sizeof(float) + grid::block_bytes(grid::kRawForm, last),
                            (n - last) * sizeof(float) + grid::block_bytes(14, last));
}

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
