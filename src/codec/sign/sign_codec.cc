// One bit an element: its sign, times a scale of its bucket.
//
// scale: the bucket's mean magnitude |x|_1 / n, which has the least error of all scales, or with scale=norm the root of
// its mean square |x|_2 / sqrt(n), as in DeepSpeed. Rule: kernels/sign/sign_reference.h. Layout: kernels/sign/sign.h.
// A bucket loses 0.36 of the energy of normally distributed values: training needs error feedback.
// A bucket with an element that is not finite decodes to NaN.
#include <fmt/format.h>

#include "base/log.h"
#include "codec/registry.h"
#include "kernels/sign/sign.h"

namespace qccl {
namespace {

class SignCodec final : public KernelCodec<kernels::SignFormat, kernels::sign_encoded_bytes, kernels::sign_decode> {
 public:
  explicit SignCodec(const SettingValues& values)
      : KernelCodec({static_cast<std::uint32_t>(values.whole("bucket_size")), values.word("scale") == "norm"}) {}

  std::uint32_t bucket_size() const override { return format_.bucket_size; }
  std::optional<std::size_t> encode_with_residual(std::span<const float> source, Bytes target, const RandomStream&,
                                                  float factor, float* residual) const override {
    const std::size_t bytes = max_encoded_bytes(source.size());
    QCCL_CHECK(target.size() >= bytes);
    kernels::sign_encode(format_, source.data(), source.size(), target.data(), factor, residual);
    return bytes;
  }
  // x and y have the same sign, and neither scale exceeds the largest magnitude.
  double error_bound(const BlockSummary& block) const override { return block.magnitude() * (1 + 0x1p-16) + 0x1p-149; }

  std::optional<kernels::device::PayloadFormat> device_format() const override {
    return kernels::device::PayloadFormat{
        .kind = kernels::device::PayloadKind::sign, .norm_scale = format_.norm_scale, .bucket = format_.bucket_size};
  }

 private:
  std::string description() const override { return fmt::format("sign in buckets of {}", format_.bucket_size); }
  void write(std::span<const float> source, std::byte* target, const RandomStream&) const override {
    kernels::sign_encode(format_, source.data(), source.size(), target);
  }
};

constexpr CodecSetting kSettings[] = {
    {.key = "bucket_size",
     .allowed = "1..65536",
     .default_value = 256,
     .meaning = "elements that share one scale; multiples of 64 are fast"},
    {.key = "scale",
     .allowed = "mean|norm",
     .default_value = 0,
     .meaning = "mean: of |x|, the least error; norm: the root of the mean square, DeepSpeed's",
     .quiet_if_default = true},
};

}  // namespace

constinit const CodecEntry kSignCodec = {
    .name = "sign",
    .summary = "one bit an element and a scale a bucket; needs error feedback",
    .layout =
        "for each bucket 4 bytes: scale, float32\n"
        "then a bit an element, lowest bit first: 1 for x < 0, padded to a byte",
    .bound = "max |x| * (1 + 2^-16) + 2^-149 (of a bucket together: ||x - y||^2 = ||x||^2 - |x|_1^2 / n)",
    .source = "1-bit SGD (Seide et al. 2014); error feedback for signs (Karimireddy et al. 2019, arXiv 1901.09847)",
    .settings = kSettings,
    .make = make<SignCodec>,
    .examples = "sign:bucket_size=64 sign:bucket_size=256 sign:bucket_size=1024 sign:bucket_size=256,scale=norm",
};

Compression sign(SignOptions options) {
  return make_compression(
      "sign", {{"bucket_size", static_cast<double>(options.bucket_size)}, {"scale", options.norm_scale ? 1.0 : 0.0}});
}

}  // namespace qccl
