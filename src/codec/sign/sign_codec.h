// One bit an element: its sign, times a scale of its bucket.
//
// scale: the bucket's mean magnitude |x|_1 / n, which has the least error of all scales, or with scale=norm the root of
// its mean square |x|_2 / sqrt(n), as in DeepSpeed. y = -scale for x < 0, else scale, also for -0. The rule, including
// the order of additions: kernels/sign/sign_reference.h. Layout of a slice, with the byte table: kernels/sign/sign.h, 4
// bytes of scale a bucket and a bit an element; the size is a function of the number of elements alone, and decode()
// accepts no other.
// Error: an element is off by at most the bucket's largest magnitude (and 2^-16 of it). For a bucket as a whole
// |x - y|^2 = |x|_2^2 - |x|_1^2 / n: 0.36 of the energy of normally distributed values. Training needs error feedback.
// A bucket with an element that is not finite decodes to NaN; so does one with a scale that no encoder writes.
// Source: 1-bit SGD (Seide et al. 2014); error feedback for signs (Karimireddy et al. 2019, arXiv 1901.09847).
#pragma once

#include "codec/registry.h"
#include "kernels/sign/sign.h"

namespace qccl {

extern const CodecEntry kSignCodec;

class SignCodec final : public Codec {
 public:
  explicit SignCodec(kernels::SignFormat format) : format_(format) {}

  std::uint32_t bucket_size() const override { return format_.bucket_size; }
  std::size_t max_encoded_bytes(std::size_t elements) const override;
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override;
  std::optional<std::size_t> encode_with_residual(std::span<const float> source, Bytes target,
                                                  const RandomStream& random, float factor,
                                                  float* residual) const override;
  Status decode(ConstBytes source, std::span<float> target) const override;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override;
  double error_bound(const BlockSummary& block) const override;

 private:
  Status check_size(ConstBytes source, std::size_t elements) const;

  const kernels::SignFormat format_;
};

}  // namespace qccl
