// Float32 unchanged: the codec of max-min quantization to 32 bits.
//
// Layout: the elements' bits, little-endian, in order: 4 * elements bytes. No rounding, no error.
#pragma once

#include "codec/codec.h"

namespace qccl {

class RawCodec final : public Codec {
 public:
  std::uint32_t bucket_size() const override { return 1; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return elements * sizeof(float); }
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override;
  Status decode(ConstBytes source, std::span<float> target) const override;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override;
  double error_bound(const BlockSummary&) const override { return 0; }
};

}  // namespace qccl
