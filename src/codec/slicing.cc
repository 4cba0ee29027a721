#include "codec/slicing.h"

#include <algorithm>
#include <numeric>

namespace qccl {
namespace {

constexpr std::size_t kPayloadLimit = 256 * 1024;  // one frame
constexpr std::uint64_t kPackGroup = 8;            // codes that share whole bytes
constexpr std::uint64_t kRawAlignment = 64;

}  // namespace

std::uint64_t slice_elements(const Codec* codec, DataType type, std::size_t target_input_bytes) {
  if (codec == nullptr) {
    return std::max<std::uint64_t>(kRawAlignment,
                                   target_input_bytes / element_bytes(type) / kRawAlignment * kRawAlignment);
  }
  const std::uint64_t bucket = codec->bucket_size();
  const std::uint64_t packed = std::lcm(bucket, kPackGroup);
  const std::uint64_t most = target_input_bytes / sizeof(float);
  const std::uint64_t unit = packed <= most && codec->max_encoded_bytes(packed) <= kPayloadLimit ? packed : bucket;
  std::uint64_t elements = std::max(unit, most / unit * unit);
  while (elements > unit && codec->max_encoded_bytes(elements) > kPayloadLimit) elements -= unit;
  return elements;
}

}  // namespace qccl
