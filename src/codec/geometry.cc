#include "codec/geometry.h"

#include <algorithm>
#include <numeric>

namespace qccl {
namespace {

constexpr std::uint64_t kAlignment = 64;  // elements

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<Range> chunk_ranges(std::uint64_t count, int world, std::uint32_t bucket_size) {
  const auto ranks = static_cast<std::uint64_t>(world);
  const std::uint64_t unit = std::lcm<std::uint64_t>(bucket_size, kAlignment);
  const std::uint64_t share = round_up((count + ranks - 1) / ranks, unit);
  std::vector<Range> ranges;
  ranges.reserve(ranks);
  std::uint64_t begin = 0;
  for (int rank = 0; rank < world; ++rank) {
    const std::uint64_t length = std::min(share, count - begin);
    ranges.push_back({begin, length});
    begin += length;
  }
  return ranges;
}

std::uint64_t slice_count(std::uint64_t chunk_elements, std::uint64_t slice_elements) {
  return (chunk_elements + slice_elements - 1) / slice_elements;
}

Range slice_range(std::uint64_t chunk_elements, std::uint64_t slice_elements, std::uint64_t slice_index) {
  const std::uint64_t begin = slice_index * slice_elements;
  return {begin, std::min(slice_elements, chunk_elements - begin)};
}

}  // namespace qccl
