// Symmetric integers: each block's elements as multiples of one scale, from -Q to Q, Q = 2^(bits - 1) - 1.
//
// scale = max |x| / Q rounded up to bfloat16, at least 2^-118; q = x / scale rounded; y = q * scale, which is exact,
// and so is zero. Rule and proof of the bound: kernels/block_int/block_int_reference.h. Layout of a slice:
// kernels/block_int/block_int.h, 2 bytes of scale a block and then the integers, `bits` bits each: the size is a
// function of the number of elements alone, and decode() accepts no other.
// Rounding: to nearest even; or stochastic, by a random byte of (draw, index in the tensor), stratified over ranks:
// the mean is right, and for a sum over N ranks the variance is scale^2 (N + 1) / 12.
// A block with an element that is not finite has the scale NaN and decodes to NaN; so does a block with a scale that no
// encoder writes.
// Error: at most scale * (1/2 + Q * 2^-23), stochastic: scale; scale <= max |x| / Q * (1 + 2^-7 + 2^-22) or 2^-118.
// Source: block absmax quantization; QSGD (Alistarh et al., 2017, arXiv 1610.02132) for random rounding.
#pragma once

#include "codec/registry.h"
#include "kernels/block_int/block_int.h"

namespace qccl {

extern const CodecEntry kIntCodec;

class IntCodec final : public Codec {
 public:
  // bits 2..8, block 1..65536.
  IntCodec(int bits, std::uint32_t block, bool stochastic) : format_{bits, block}, stochastic_(stochastic) {}

  std::uint32_t bucket_size() const override { return format_.block_size; }
  std::size_t max_encoded_bytes(std::size_t elements) const override;
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override;
  Status decode(ConstBytes source, std::span<float> target) const override;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override;
  double error_bound(const BlockSummary& block) const override;

 private:
  Status check_size(ConstBytes source, std::size_t elements) const;

  const kernels::BlockIntFormat format_;
  const bool stochastic_;
};

}  // namespace qccl
