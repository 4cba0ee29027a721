#include "codec/geometry.h"

#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "codec/codec.h"

namespace qccl {
namespace {

constexpr std::uint64_t kAlignment = 64;  // elements
constexpr std::uint64_t kPackGroup = 8;   // codes that share whole bytes

std::uint64_t divide_up(std::uint64_t value, std::uint64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

// Chunks begin at multiples of it.
std::uint64_t chunk_unit(std::uint32_t bucket_size) { return std::lcm<std::uint64_t>(bucket_size, kAlignment); }

// value x part / whole, to the nearest integer. `part` and `whole` are below 2^32, and part <= whole.
std::uint64_t scaled(std::uint64_t value, std::uint64_t part, std::uint64_t whole) {
  return value / whole * part + (value % whole * part + whole / 2) / whole;
}

std::uint64_t raw_slice(std::size_t input_bytes, DataType type) {
  const std::uint64_t elements = input_bytes / element_bytes(type);
  return std::max(kAlignment, elements / kAlignment * kAlignment);
}

}  // namespace

std::vector<Range> chunk_ranges(std::uint64_t count, int world, std::uint32_t bucket_size) {
  QCCL_CHECK(world >= 1 && bucket_size >= 1);
  const std::uint64_t unit = chunk_unit(bucket_size);
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

std::vector<Range> chunk_ranges(std::uint64_t count, std::span<const int> shares, std::uint32_t bucket_size) {
  const std::uint64_t whole = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  QCCL_CHECK(whole >= 1 && whole >> 32 == 0 && bucket_size >= 1);
  const std::uint64_t unit = chunk_unit(bucket_size);
  const std::uint64_t units = divide_up(count, unit);
  std::vector<Range> ranges;
  ranges.reserve(shares.size());
  std::uint64_t begin = 0;
  std::uint64_t before = 0;  // sum of the shares up to this one
  for (const int share : shares) {
    before += static_cast<std::uint64_t>(share);
    const std::uint64_t end_unit = scaled(units, before, whole);
    const std::uint64_t end = end_unit == units ? count : end_unit * unit;
    ranges.push_back({begin, end - begin});
    begin = end;
  }
  return ranges;
}

std::uint64_t slice_elements(const Codec* codec, DataType type, std::size_t target_input_bytes,
                             std::size_t most_encoded_bytes) {
  QCCL_CHECK(most_encoded_bytes <= kMaxSliceBytes);
  if (codec == nullptr) return raw_slice(std::min(target_input_bytes, most_encoded_bytes), type);
  const std::uint64_t most = target_input_bytes / sizeof(float);
  const auto fits = [&](std::uint64_t elements) {
    return elements <= most && codec->max_encoded_bytes(elements) <= most_encoded_bytes;
  };
  const std::uint64_t bucket = codec->bucket_size();
  const std::uint64_t group = std::lcm(bucket, kPackGroup);
  const std::uint64_t unit = fits(group) ? group : bucket;
  // max_encoded_bytes grows with the elements, so bisection finds the largest number of units that fits.
  std::uint64_t least = 1;
  std::uint64_t beyond = most / unit + 1;
  while (least + 1 < beyond) {
    const std::uint64_t middle = least + (beyond - least) / 2;
    (fits(middle * unit) ? least : beyond) = middle;
  }
  return least * unit;
}

double expected_element_bytes(const Codec* codec, DataType type, std::uint64_t slice_elements) {
  if (codec == nullptr) return static_cast<double>(element_bytes(type));
  return static_cast<double>(codec->expected_encoded_bytes(slice_elements, type)) / static_cast<double>(slice_elements);
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
