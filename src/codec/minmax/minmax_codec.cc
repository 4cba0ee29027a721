// QNCCL's max-min quantizer: each bucket's range in 2^bits - 1 equal steps. 32 bits: float32 unchanged.
//
// Rule and proof of the bound: kernels/minmax/minmax_reference.h; for 9..15 and 17..31 bits, which are computed in
// double and slowly, kernels/minmax/minmax.cc. Layout: kernels/minmax/minmax.h.
// Rounding: to nearest, half up; or stochastic, by a random byte of (key, rank, index in the tensor), stratified over
// ranks: the mean is right, and for a sum over N ranks the variance is unit^2 (N + 1) / 12.
// A bucket with an element that is not finite decodes to NaN. In the bound unit is at least 2^-126.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codec/registry.h"
#include "kernels/copy.h"
#include "kernels/minmax/minmax.h"
#include "kernels/reduce/reduce.h"

namespace qccl {
namespace {

// Distance from |x| to the next larger float32 in the same binade.
double ulp(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::max(std::ldexp(1.0, exponent - 24), 0x1p-149);
}

class MinmaxCodec final
    : public KernelCodec<kernels::MinmaxFormat, kernels::minmax_encoded_bytes, kernels::minmax_decode> {
 public:
  // bits 1..31
  explicit MinmaxCodec(const SettingValues& values)
      : KernelCodec({values.whole("bits"), static_cast<std::uint32_t>(values.whole("bucket_size"))}),
        stochastic_(is_stochastic(values)) {}

  std::uint32_t bucket_size() const override { return format_.bucket_size; }
  double error_bound(const BlockSummary& block) const override {
    const double levels = std::ldexp(1.0, format_.bits) - 1;
    const double unit = std::max((block.maximum - block.minimum) / levels, 0x1p-126);
    return (stochastic_ ? unit : unit / 2) + 6 * ulp(block.magnitude());
  }

  std::optional<kernels::device::PayloadFormat> device_format() const override {
    if (format_.bits > 8) return std::nullopt;
    return kernels::device::PayloadFormat{.kind = kernels::device::PayloadKind::minmax,
                                          .bits = static_cast<std::uint8_t>(format_.bits),
                                          .stochastic = stochastic_,
                                          .bucket = format_.bucket_size};
  }

 private:
  std::string description() const override {
    return fmt::format("minmax of {} bits in buckets of {}", format_.bits, format_.bucket_size);
  }
  void write(std::span<const float> source, std::byte* target, const RandomStream& random) const override {
    kernels::minmax_encode(format_, source.data(), source.size(), target, stochastic_ ? &random : nullptr);
  }

  const bool stochastic_;
};

// 32 bits: float32 unchanged.
class RawCodec final : public FixedSizeCodec {
 public:
  std::uint32_t bucket_size() const override { return 1; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return elements * sizeof(float); }
  double error_bound(const BlockSummary&) const override { return 0; }

 private:
  std::string description() const override { return "raw float32"; }
  void write(std::span<const float> source, std::byte* target, const RandomStream&) const override {
    kernels::copy(target, source.data(), source.size_bytes());
  }
  Status read(const std::byte* source, const float* addend, std::span<float> target) const override {
    if (addend == nullptr) {
      kernels::copy(target.data(), source, target.size_bytes());
    } else {
      kernels::reduce(DataType::float32, ReduceOp::sum, target.data(), addend, source, target.size());
    }
    return {};
  }
};

constexpr CodecSetting kSettings[] = {
    {.key = "bits",
     .allowed = "1..32",
     .default_value = 8,
     .meaning = "of each element's code; 32: unchanged; 9..15 and 17..31: slow, an element at a time"},
    {.key = "bucket_size", .allowed = "1..65536", .default_value = 1024, .meaning = "elements that share one scale"},
    kRoundingSetting,
};

std::shared_ptr<const Codec> make_any(const SettingValues& values) {
  if (values.whole("bits") == 32) return std::make_shared<RawCodec>();
  return std::make_shared<MinmaxCodec>(values);
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
    .make = make_any,
    .examples = "minmax:bits=8 minmax:bits=6 minmax:bits=5 minmax:bits=4 minmax:bits=3 minmax:bits=2 minmax:bits=1",
};

Compression minmax(MinmaxOptions options) {
  return make_compression("minmax", {{"bits", static_cast<double>(options.bits)},
                                     {"bucket_size", static_cast<double>(options.bucket_size)},
                                     {"rounding", static_cast<double>(options.rounding)}});
}

}  // namespace qccl
