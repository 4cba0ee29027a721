#include "codec/geometry.h"

#include <algorithm>
#include <numeric>

#include "base/log.h"

namespace qccl {
namespace {

constexpr std::uint64_t kAlignment = 64;  // elements

std::uint64_t divide_up(std::uint64_t value, std::uint64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

}  // namespace

std::vector<Range> chunk_ranges(std::uint64_t count, int world, std::uint32_t bucket_size) {
  QCCL_CHECK(world >= 1 && bucket_size >= 1);
  const std::uint64_t unit = std::lcm<std::uint64_t>(bucket_size, kAlignment);
  const std::uint64_t units = divide_up(divide_up(count, static_cast<std::uint64_t>(world)), unit);
  // If rounding up exceeds the largest count, one chunk has everything.
  const std::uint64_t share = units > UINT64_MAX / unit ? count : units * unit;
  std::vector<Range> ranges;
  ranges.reserve(static_cast<std::size_t>(world));
  std::uint64_t begin = 0;
  for (int rank = 0; rank < world; ++rank) {
    ranges.push_back({begin, std::min(share, count - begin)});
    begin += ranges.back().count;
  }
  return ranges;
}

std::uint64_t slice_count(std::uint64_t chunk_elements, std::uint64_t slice_elements) {
  QCCL_CHECK(slice_elements >= 1);
  return divide_up(chunk_elements, slice_elements);
}

Range slice_range(std::uint64_t chunk_elements, std::uint64_t slice_elements, std::uint64_t slice_index) {
  if (slice_index >= slice_count(chunk_elements, slice_elements)) return {chunk_elements, 0};
  const std::uint64_t begin = slice_index * slice_elements;
  return {begin, std::min(slice_elements, chunk_elements - begin)};
}

}  // namespace qccl
