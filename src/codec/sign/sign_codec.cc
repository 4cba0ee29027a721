#include "codec/sign/sign_codec.h"

#include <fmt/format.h>

#include "base/check.h"

namespace qccl {
namespace {

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

Result<std::shared_ptr<const Codec>> make(const SettingValues& values) {
  const kernels::SignFormat format{static_cast<std::uint32_t>(values.whole("bucket_size")),
                                   values.word("scale") == "norm"};
  return std::shared_ptr<const Codec>(std::make_shared<SignCodec>(format));
}

}  // namespace

constinit const CodecEntry kSignCodec = {
    .name = "sign",
    .summary = "one bit an element and a scale a bucket; wants error feedback",
    .layout =
        "for each bucket 4 bytes: scale, float32\n"
        "then a bit an element, lowest bit first: 1 for x < 0, padded to a byte",
    .bound = "max |x| * (1 + 2^-16) + 2^-149 (of a bucket together: ||x - y||^2 = ||x||^2 - |x|_1^2 / n)",
    .source = "1-bit SGD (Seide et al. 2014); error feedback for signs (Karimireddy et al. 2019, arXiv 1901.09847)",
    .settings = kSettings,
    .make = make,
    .examples = "sign:bucket_size=64 sign:bucket_size=256 sign:bucket_size=1024 sign:bucket_size=256,scale=norm",
};

Compression sign(SignOptions options) {
  return make_compression(
      "sign", {{"bucket_size", static_cast<double>(options.bucket_size)}, {"scale", options.norm_scale ? 1.0 : 0.0}});
}

std::size_t SignCodec::max_encoded_bytes(std::size_t elements) const {
  return kernels::sign_encoded_bytes(format_, elements);
}

std::size_t SignCodec::encode(std::span<const float> source, Bytes target, const RandomStream&) const {
  const std::size_t bytes = max_encoded_bytes(source.size());
  QCCL_CHECK(target.size() >= bytes);
  kernels::sign_encode(format_, source.data(), source.size(), target.data());
  return bytes;
}

std::optional<std::size_t> SignCodec::encode_with_residual(std::span<const float> source, Bytes target,
                                                           const RandomStream&, float factor, float* residual) const {
  const std::size_t bytes = max_encoded_bytes(source.size());
  QCCL_CHECK(target.size() >= bytes);
  kernels::sign_encode_with_residual(format_, source.data(), source.size(), target.data(), factor, residual);
  return bytes;
}

Status SignCodec::check_size(ConstBytes source, std::size_t elements) const {
  const std::size_t bytes = max_encoded_bytes(elements);
  if (source.size() == bytes) return {};
  return Failure(ErrorKind::corrupt_data,
                 fmt::format("sign in buckets of {}: got {} bytes for {} elements, which take {}", format_.bucket_size,
                             source.size(), elements, bytes));
}

Status SignCodec::decode(ConstBytes source, std::span<float> target) const {
  QCCL_TRY(check_size(source, target.size()));
  kernels::sign_decode(format_, source.data(), target.data(), target.size());
  return {};
}

Status SignCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  QCCL_TRY(check_size(source, target.size()));
  kernels::sign_decode_add(format_, source.data(), addend.data(), target.data(), target.size());
  return {};
}

// x and y have the same sign, and neither scale exceeds the largest magnitude.
double SignCodec::error_bound(const BlockSummary& block) const { return block.magnitude() * (1 + 0x1p-16) + 0x1p-149; }

}  // namespace qccl
