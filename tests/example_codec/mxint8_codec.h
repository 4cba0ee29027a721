// MXINT8 of the OCP Microscaling Formats: blocks of 8-bit integers that share a power of two.
//
// With e = floor(log2(max |x|)) of a block, at least -127: code = x / 2^(e - 6) rounded to nearest,
// ties to even, clamped to -127..127; y = code * 2^(e - 6), exactly.
//
// | bytes          | content                                                             |
// |----------------|---------------------------------------------------------------------|
// | ceil(n / block)| e + 127 of each block; 255: it had a value that was not finite      |
// | n              | the codes, two's complement                                         |
//
// Error: at most 2^(e - 6), of values that are clamped; half of that of all others.
// Source: OCP Microscaling Formats (MX) Specification 1.0, where the block is 32.
#pragma once

#include "codec/registry.h"

namespace qccl {

extern const CodecEntry kMxint8Codec;

class Mxint8Codec final : public Codec {
 public:
  explicit Mxint8Codec(std::uint32_t block) : block_(block) {}

  std::uint32_t bucket_size() const override { return block_; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return blocks(elements) + elements; }
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override;
  Status decode(ConstBytes source, std::span<float> target) const override;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override;
  double error_bound(const BlockSummary& block) const override;

 private:
  std::size_t blocks(std::size_t elements) const { return (elements + block_ - 1) / block_; }
  Status check_size(ConstBytes source, std::size_t elements) const;
  float decoded(ConstBytes source, std::size_t elements, std::size_t i) const;

  const std::uint32_t block_;
};

}  // namespace qccl
