// Sparse: of each 4096 elements the share `density` that is largest by magnitude, with indices; all others are 0.
//
// Layout of a slice, with the byte table: kernels/topk/topk.h; the rule: kernels/topk/topk_reference.h. Of n elements
// (4096, or what is left at the end) exactly k = ceil(ceil(4096 density) n / 4096) are sent, so that the size is a
// function of the count alone: 44 k bits of each chunk with float32 values, 20 k + 32 with int8 values.
// Rounding: float32 values are unchanged; int8 values to nearest even in 127 steps of the chunk's largest magnitude.
// Error: elements that are not sent are lost. ||x - y||^2 <= (1 - k/n) ||x||^2 for float32 values, the least for any k
// elements. Training needs error feedback: without it the small elements never arrive.
// A chunk with an element that is not finite decodes to NaN. Adding leaves elements that were not sent unchanged.
// Source: top-k with error feedback (Stich, Cordonnier, Jaggi 2018, arXiv 1809.07599).
#pragma once

#include "codec/registry.h"
#include "kernels/topk/topk.h"

namespace qccl {

extern const CodecEntry kTopkCodec;

class TopkCodec final : public Codec {
 public:
  explicit TopkCodec(kernels::TopkFormat format) : format_(format) {}

  std::uint32_t bucket_size() const override { return kernels::kTopkChunk; }
  std::size_t max_encoded_bytes(std::size_t elements) const override;
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override;
  Status decode(ConstBytes source, std::span<float> target) const override;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override;
  double error_bound(const BlockSummary& block) const override;

 private:
  Status check_size(ConstBytes source, std::size_t elements) const;

  const kernels::TopkFormat format_;
};

}  // namespace qccl
