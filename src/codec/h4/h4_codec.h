// Randomized Hadamard transform and Lloyd-Max codebook: blocks of 256 are rotated at random, so that any data looks
// normally distributed, and each coefficient takes the nearest of the 4, 8 or 16 levels that are best for that
// distribution.
//
// Rule, bounds and special blocks: kernels/h4/h4_reference.h. Layout of a slice, with the byte table: kernels/h4/h4.h:
// 8 bytes for the random signs, 2 of scale a block, `bits` bits an element; a last block of fewer than 256 is padded
// with zeros and takes the bytes of a whole one. The size is a function of the number of elements alone, and decode()
// accepts no other. The signs are a function of the draw's key, its rank and the block's index in the tensor: they
// differ between ranks, so that equal inputs do not make equal errors, and between phases and calls. A block whose
// error is larger than that of normally distributed data is transformed a second time.
// scale=unbiased: the mean of the decoded block over the random signs is the block (EDEN); scale=least: least error.
// Error: an element is off by at most the block's Euclidean norm (and 2^-6 of it). For a block as a whole, in the mean
// over signs: |x - y|^2 = D |x|^2, unbiased D / (1 - D), D = .1175, .0345, .0095 for 2, 3, 4 bits.
// A block with an element that is not finite decodes to NaN.
// Source: DRIVE (arXiv 2105.08339), EDEN (arXiv 2108.08842); the second transform: arXiv 2605.06014.
#pragma once

#include "codec/registry.h"
#include "kernels/h4/h4.h"

namespace qccl {

extern const CodecEntry kH4Codec;

class H4Codec final : public Codec {
 public:
  explicit H4Codec(kernels::H4Format format) : format_(format) {}

  std::uint32_t bucket_size() const override { return kernels::kH4Block; }
  std::size_t max_encoded_bytes(std::size_t elements) const override;
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override;
  Status decode(ConstBytes source, std::span<float> target) const override;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override;
  double error_bound(const BlockSummary& block) const override;

 private:
  Status check_size(ConstBytes source, std::size_t elements) const;

  const kernels::H4Format format_;
};

}  // namespace qccl
