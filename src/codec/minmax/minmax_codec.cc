#include "codec/minmax/minmax_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "codec/raw/raw_codec.h"

namespace qccl {
namespace {

// Distance from |x| to the next larger float32 in the same binade.
double ulp(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::max(std::ldexp(1.0, exponent - 24), 0x1p-149);
}

constexpr CodecSetting kSettings[] = {
    {.key = "bits",
     .allowed = "1..32",
     .default_value = 8,
     .meaning = "of each element's code; 32: as it is; 9..15 and 17..31: slow, an element at a time"},
    {.key = "bucket_size", .allowed = "1..65536", .default_value = 1024, .meaning = "elements that share one scale"},
    kRoundingSetting,
};

Result<std::shared_ptr<const Codec>> make(const SettingValues& values) {
  const int bits = values.whole("bits");
  if (bits == 32) return std::shared_ptr<const Codec>(std::make_shared<RawCodec>());
  const auto bucket_size = static_cast<std::uint32_t>(values.whole("bucket_size"));
  return std::shared_ptr<const Codec>(std::make_shared<MinmaxCodec>(bits, bucket_size, is_stochastic(values)));
}

}  // namespace

constinit const CodecEntry kMinmaxCodec = {
    .name = "minmax",
    .summary = "each bucket's range in 2^bits - 1 equal steps",
    .layout =
        "for each bucket 8 bytes: unit and minimum, float32\n"
        "then the codes of all elements, `bits` bits each, lowest bit first, padded to a byte\n"
        "bits=32: the float32 values and nothing else",
    .bound =
        "unit/2 + 6 ulp(max |x|), rounding=stochastic: unit + 6 ulp(max |x|);\n"
        "unit = (max - min) / (2^bits - 1) of the bucket",
    .source = "QNCCL; CGX (Markov, Ramezanikebrya, Alistarh 2021, arXiv 2111.08617)",
    .settings = kSettings,
    .make = make,
    .examples = "minmax:bits=8 minmax:bits=6 minmax:bits=5 minmax:bits=4 minmax:bits=3 minmax:bits=2 minmax:bits=1",
};

Compression minmax(MinmaxOptions options) {
  return make_compression("minmax", {{"bits", static_cast<double>(options.bits)},
                                     {"bucket_size", static_cast<double>(options.bucket_size)},
                                     {"rounding", static_cast<double>(options.rounding)}});
}

std::size_t MinmaxCodec::max_encoded_bytes(std::size_t elements) const {
  return kernels::minmax_encoded_bytes(format_, elements);
}

std::size_t MinmaxCodec::encode(std::span<const float> source, Bytes target, const RandomStream& random) const {
  const std::size_t bytes = max_encoded_bytes(source.size());
  QCCL_CHECK(target.size() >= bytes);
  kernels::minmax_encode(format_, source.data(), source.size(), target.data(), stochastic_ ? &random : nullptr);
  return bytes;
}

Status MinmaxCodec::check_size(ConstBytes source, std::size_t elements) const {
  const std::size_t bytes = max_encoded_bytes(elements);
  if (source.size() == bytes) return {};
  return Failure(ErrorKind::corrupt_data,
                 fmt::format("minmax of {} bits in buckets of {}: got {} bytes for {} elements, which take {}",
                             format_.bits, format_.bucket_size, source.size(), elements, bytes));
}

Status MinmaxCodec::decode(ConstBytes source, std::span<float> target) const {
  QCCL_TRY(check_size(source, target.size()));
  kernels::minmax_decode(format_, source.data(), target.data(), target.size());
  return {};
}

Status MinmaxCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  QCCL_TRY(check_size(source, target.size()));
  kernels::minmax_decode_add(format_, source.data(), addend.data(), target.data(), target.size());
  return {};
}

double MinmaxCodec::error_bound(const BlockSummary& block) const {
  const double levels = std::ldexp(1.0, format_.bits) - 1;
  const double unit = std::max((block.maximum - block.minimum) / levels, 0x1p-126);
  return (stochastic_ ? unit : unit / 2) + 6 * ulp(block.magnitude());
}

}  // namespace qccl
