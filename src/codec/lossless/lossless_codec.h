// Every bit of float32, and of bfloat16 and float16 tensors, in fewer bytes: exponents in windows, other bits
// unchanged.
//
// Layout of a slice, with the byte table: kernels/lossless/lossless.h; the rule: kernels/lossless/lossless_reference.h.
// The size depends on the values: normally distributed data takes two thirds of bfloat16, five sixths of float32, six
// sevenths of float16; a constant block of 1024 takes 5 bytes; random bits take one byte a block more than their own
// size. Rounding: none. Error: 0. Values that are not finite come back unchanged, payloads of NaN included.
// Source: exponent coding: ZipNN, DietGPU; windows in place of entropy codes.
#pragma once

#include "codec/registry.h"

namespace qccl {

extern const CodecEntry kLosslessCodec;

class LosslessCodec final : public Codec {
 public:
  std::uint32_t bucket_size() const override { return 1; }
  std::size_t max_encoded_bytes(std::size_t elements) const override;
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override;
  Status decode(ConstBytes source, std::span<float> target) const override;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override;
  double error_bound(const BlockSummary&) const override { return 0; }
  bool is_exact() const override { return true; }
};

}  // namespace qccl
