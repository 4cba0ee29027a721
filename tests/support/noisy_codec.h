// A codec that draws random numbers and whose sizes depend on values, to test the engine's support for such codecs.
#pragma once

#include "codec/codec.h"

namespace qccl::testing {

// A small whole number computed from everything that the random numbers may depend on.
inline float noise(const RandomStream& random, std::uint64_t element) {
  return static_cast<float>(random_key(random.key, element * random.world + random.rank, RandomPhase::input) % 16);
}

// Adds that noise to every value but 0. A byte says whether a value follows.
class NoisyCodec final : public Codec {
 public:
  static constexpr std::uint32_t kBucket = 16;

  std::uint32_t bucket_size() const override { return kBucket; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return 5 * elements; }
  double error_bound(const BlockSummary&) const override { return 15; }

  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override {
    std::size_t at = 0;
    for (std::size_t i = 0; i < source.size(); ++i) {
      store<std::uint8_t>(&target[at++], source[i] != 0);
      if (source[i] == 0) continue;
      store<float>(&target[at], source[i] + noise(random, random.first_element + i));
      at += sizeof(float);
    }
    return at;
  }
  Status decode(ConstBytes source, std::span<float> target) const override {
    std::size_t at = 0;
    for (float& value : target) {
      if (at >= source.size()) return damaged();
      value = 0;
      if (load<std::uint8_t>(&source[at++]) == 0) continue;
      if (at + sizeof(float) > source.size()) return damaged();
      value = load<float>(&source[at]);
      at += sizeof(float);
    }
    return at == source.size() ? Status() : damaged();
  }
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override {
    std::vector<float> decoded(target.size());
    QCCL_TRY(decode(source, decoded));
    for (std::size_t i = 0; i < target.size(); ++i) target[i] = addend[i] + decoded[i];
    return {};
  }

 private:
  static Failure damaged() { return Failure(ErrorKind::corrupt_data, "noisy: other size"); }
};

}  // namespace qccl::testing
