// The boundaries of chunks, slices and buckets. Planner, engine and codecs all use these functions, so that no two
// parts of the library can disagree on a boundary. They depend only on the call, so all ranks agree as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "qccl/types.h"

namespace qccl {

class Codec;

// Elements [begin, begin + count) of a buffer.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// Chunk boundaries depend only on (count, world, bucket_size): all chunks but the last non-empty one have
// ceil(count / world) elements rounded up to lcm(bucket_size, 64). The last ranks may own less or nothing.
std::vector<Range> chunk_ranges(std::uint64_t count, int world, std::uint32_t bucket_size);

// One chunk for each share, as long as its part of all shares, to the nearest multiple of lcm(bucket_size, 64). A share
// of 0 owns nothing. At least one is above 0, and their sum is below 2^32.
std::vector<Range> chunk_ranges(std::uint64_t count, std::span<const int> shares, std::uint32_t bucket_size);

// Limit of a slice's encoded bytes: the payload of one frame.
inline constexpr std::size_t kMaxSliceBytes = 256 * 1024;

// Elements of a slice of about `target_input_bytes` of input (elements of `type`, or float32 with a codec), at most
// `most_encoded_bytes` encoded, if a bucket fits. Raw data (`codec` null): a multiple of 64, at least 64. With a codec:
// whole buckets, at least one; also a multiple of 8, if a small enough one exists.
std::uint64_t slice_elements(const Codec* codec, DataType type, std::size_t target_input_bytes,
                             std::size_t most_encoded_bytes = kMaxSliceBytes);

// The bytes of an element on the wire that prices assume, in slices of so many: Codec::expected_encoded_bytes();
// without a codec those of the type.
double expected_element_bytes(const Codec* codec, DataType type, std::uint64_t slice_elements);

// Slices cut a chunk from its start into pieces of `slice_elements`; the last one is shorter, and slices past the end
// are empty.
std::uint64_t slice_count(std::uint64_t chunk_elements, std::uint64_t slice_elements);
Range slice_range(std::uint64_t chunk_elements, std::uint64_t slice_elements, std::uint64_t slice_index);

}  // namespace qccl
