#include <algorithm>
#include <cmath>
#include <vector>

#include "base/options.h"
#include "codec/codec.h"
#include "codec/geometry.h"
#include "qccl/compression.h"
#include "qccl/error.h"

namespace qccl {
namespace {

void add(std::span<const float> values, std::span<const float> decoded, EncodingCost& cost) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i], other = decoded[i], error = other - value;
    cost.squares += value * value;
    cost.error_squares += error * error;
    cost.decoded_squares += other * other;
    cost.products += value * other;
  }
  cost.elements += values.size();
}

}  // namespace

double EncodingCost::cosine() const {
  const double norms = std::sqrt(squares) * std::sqrt(decoded_squares);
  return norms == 0 ? 0 : products / norms;
}

EncodingCost measure_encoding(const Compression& compression, std::span<const float> values, std::uint64_t most) {
  const auto codec = make_codec(compression).take_or_throw();
  if (!codec && !compression.is_none()) {
    throw Error({.kind = ErrorKind::invalid_argument,
                 .message = compression.to_string() + " is no encoding of its own: measure one of its candidates"});
  }
  const std::uint64_t slice = slice_elements(codec.get(), DataType::float32, kDefaultSliceBytes);
  const std::uint64_t slices = slice_count(values.size(), slice);
  const std::uint64_t looked_at = std::clamp<std::uint64_t>(most / slice, 1, std::max<std::uint64_t>(1, slices));
  EncodingCost cost;
  std::vector<std::byte> bytes(codec ? codec->max_encoded_bytes(slice) : 0);
  std::vector<float> decoded(slice);
  for (std::uint64_t i = 0; i < looked_at; ++i) {
    const Range range = slice_range(values.size(), slice, i * slices / looked_at);
    const auto part = values.subspan(range.begin, range.count);
    const auto target = std::span(decoded).first(range.count);
    if (!codec) {
      cost.bytes += part.size_bytes();
      add(part, part, cost);
      continue;
    }
    const RandomStream random{.key = random_key(1, 0, RandomPhase::input), .first_element = range.begin};
    const std::size_t size = codec->encode(part, bytes, random);
    codec->decode(std::span(bytes).first(size), target).take_or_throw();
    cost.bytes += size;
    add(part, target, cost);
  }
  return cost;
}

}  // namespace qccl
