// QNCCL's max-min quantizer: each bucket's range in 2^bits - 1 equal steps.
//
// Rule and proof of the bound: kernels/minmax/minmax_reference.h; for 9..15 and 17..31 bits, which are computed in
// double, without a promise of speed: kernels/minmax/minmax_double.h. Layout of a slice: kernels/minmax/minmax.h, a
// header of 8 bytes a bucket and then the codes, `bits` bits each: the size is a function of the number of elements
// alone, and decode() accepts no other.
// Rounding: to nearest, half up; or stochastic, by a random byte of (draw, index in the tensor), stratified over
// ranks: the mean is right, and for a sum over N ranks the variance is unit^2 (N + 1) / 12. A bucket with an element
// that is not finite decodes to NaN.
// Error: at most unit / 2 + 6 ulp(max |x|), stochastic: unit + 6 ulp(max |x|), where
// unit = (maximum - minimum) / (2^bits - 1), at least 2^-126.
// Source: QNCCL; CGX (Markov, Ramezanikebrya, Alistarh 2021, arXiv 2111.08617).
#pragma once

#include "codec/registry.h"
#include "kernels/minmax/minmax.h"

namespace qccl {

extern const CodecEntry kMinmaxCodec;

class MinmaxCodec final : public Codec {
 public:
  // bits 1..31, bucket_size 1..65536.
  MinmaxCodec(int bits, std::uint32_t bucket_size, bool stochastic = false)
      : format_{bits, bucket_size}, stochastic_(stochastic) {}

  std::uint32_t bucket_size() const override { return format_.bucket_size; }
  std::size_t max_encoded_bytes(std::size_t elements) const override;
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override;
  Status decode(ConstBytes source, std::span<float> target) const override;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override;
  double error_bound(const BlockSummary& block) const override;

 private:
  Status check_size(ConstBytes source, std::size_t elements) const;

  const kernels::MinmaxFormat format_;
  const bool stochastic_;
};

}  // namespace qccl
