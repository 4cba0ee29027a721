// Where chunks, slices and buckets lie. Used by planner, engine and codecs alike, so that no two
// parts of the library can disagree on a boundary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qccl {

// Elements [begin, begin + count) of a buffer.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// Chunk boundaries depend on (count, world, bucket_size) alone: all chunks but the last non-empty
// one have ceil(count / world) elements rounded up to lcm(bucket_size, 64). Late ranks may own
// less or nothing.
std::vector<Range> chunk_ranges(std::uint64_t count, int world, std::uint32_t bucket_size);

// Slices cut a chunk from its start into pieces of `slice_elements`, the last one shorter;
// past the end they are empty.
std::uint64_t slice_count(std::uint64_t chunk_elements, std::uint64_t slice_elements);
Range slice_range(std::uint64_t chunk_elements, std::uint64_t slice_elements, std::uint64_t slice_index);

}  // namespace qccl
