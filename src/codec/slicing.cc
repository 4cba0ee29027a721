#include "codec/slicing.h"

#include <algorithm>
#include <numeric>

namespace qccl {
namespace {

constexpr std::uint64_t kPackGroup = 8;  // codes that share whole bytes
constexpr std::uint64_t kRawAlignment = 64;

std::uint64_t raw_slice(std::size_t input_bytes, DataType type) {
  const std::uint64_t elements = std::min(input_bytes, kMaxSliceBytes) / element_bytes(type);
  return std::max(kRawAlignment, elements / kRawAlignment * kRawAlignment);
}

}  // namespace

std::uint64_t slice_elements(const Codec* codec, DataType type, std::size_t target_input_bytes) {
  if (codec == nullptr) return raw_slice(target_input_bytes, type);
  const std::uint64_t most = target_input_bytes / sizeof(float);
  const auto fits = [&](std::uint64_t elements) {
    return elements <= most && codec->max_encoded_bytes(elements) <= kMaxSliceBytes;
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

}  // namespace qccl
