// How long slices of grid.h are. Without vectors: the fake driver of tests takes this file alone.
#include <algorithm>
#include <cmath>

#include "kernels/grid/grid.h"
#include "kernels/grid/grid_entropy.h"
#include "kernels/grid/grid_reference.h"

namespace qccl::kernels {
namespace {

// The widest form of a bucket's blocks: |q| <= sqrt(n) / relative, more by the roundings of step and value.
int widest_of(const GridFormat& format) {
  const double most = std::sqrt(static_cast<double>(format.bucket_size)) / double{format.relative} * (1 + 0x1p-7) + 1;
  const auto largest = static_cast<std::int32_t>(std::min(most, double{grid::kLargestInteger}));
  return grid::width_of(grid::form_of(grid::zigzag(largest)));
}

// The most that the entropy stage takes beside blocks: no group takes more than its blocks with their forms.
constexpr std::size_t entropy_bytes(std::size_t n) {
  const std::size_t segments = bucket_count(grid::kSegment, n), groups = bucket_count(grid::kGroup, n);
  return segments * (sizeof(grid::States) + sizeof(std::uint16_t)) + (groups + 1) / 2 + 2 * groups;
}

}  // namespace

std::size_t grid_max_bytes(const GridFormat& format, std::size_t n) {
  const std::size_t headers = grid_step_bytes(format, n) + (format.entropy ? entropy_bytes(n) : grid_form_bytes(n));
  if (format.is_relative()) return headers + grid::eights(n) * static_cast<std::size_t>(widest_of(format));
  const std::size_t last = n % kGridBlock;
  return headers + (n - last) * sizeof(float) +
         std::max(grid::block_bytes(grid::kRawForm, last), grid::block_bytes(14, last));
}

std::optional<std::size_t> grid_slice_bytes(const GridFormat& format, const std::byte* source, std::size_t bytes,
                                            std::size_t n) {
  const std::size_t steps = grid_step_bytes(format, n), headers = steps + grid_form_bytes(n);
  if (bytes < headers) return std::nullopt;
  const auto* const forms = reinterpret_cast<const std::uint8_t*>(source) + steps;
  const std::size_t blocks = grid::blocks_bytes(forms, n, !format.is_relative());
  if (blocks == grid::kNoForms || blocks > bytes - headers) return std::nullopt;
  return headers + blocks;
}

}  // namespace qccl::kernels
