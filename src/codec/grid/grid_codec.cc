// Multiples of a step: the error of an element is stated, the bytes are what its block needs.
//
// Rule and proof of the bounds: kernels/grid/grid_reference.h. Layout: kernels/grid/grid.h. Rounding: to nearest even;
// or stochastic, by a random byte of (key, rank, index in the tensor), stratified over ranks. With `bound` all elements
// have one step, and each stands alone: what the integers can't hold, and what is not finite, is sent unchanged. With
// `relative` the step is that share of a bucket's root mean square, and an element that is not finite makes its bucket
// NaN. docs/decisions/0023-steps.md says why no step is that of a whole call's tensor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codec/registry.h"
#include "kernels/grid/grid.h"

namespace qccl {
namespace {

// Steps by which rounding may miss the half (nearest) or the whole (stochastic): 3 * 2^-24 * 16383, and the float32
// nearest to the step.
constexpr double kMargin = 0x1.9p-9;

// The largest step that keeps the bound.
float step_of(double bound, bool stochastic) {
  return static_cast<float>(bound / ((stochastic ? 1.0 : 0.5) + kMargin));
}

class GridCodec final : public VariableSizeCodec {
 public:
  explicit GridCodec(const SettingValues& values) : bound_(values.number("bound")), stochastic_(is_stochastic(values)) {
    format_.relative = static_cast<float>(values.number("relative"));
    format_.bucket_size = static_cast<std::uint32_t>(values.whole("bucket"));
    format_.entropy = values.word("entropy") == "rans";
    if (bound_ > 0) format_.step = step_of(bound_, stochastic_);
  }

  std::uint32_t bucket_size() const override { return format_.is_relative() ? format_.bucket_size : 1; }
  std::size_t max_encoded_bytes(std::size_t elements) const override {
    return kernels::grid_max_bytes(format_, elements);
  }
  std::size_t expected_encoded_bytes(std::size_t elements, DataType) const override {
    return std::min(max_encoded_bytes(elements), elements * expected_bits() / 80 + elements / 100);
  }
  std::optional<kernels::device::PayloadFormat> device_format() const override {
    if (format_.entropy) return std::nullopt;
    return kernels::device::PayloadFormat{.kind = kernels::device::PayloadKind::grid,
                                          .stochastic = stochastic_,
                                          .bucket = bucket_size(),
                                          .step = format_.is_relative() ? format_.relative : format_.step};
  }
  std::optional<std::size_t> find_encoded_bytes(ConstBytes source, std::size_t elements) const override {
    return kernels::grid_slice_bytes(format_, source.data(), source.size(), elements);
  }
  // The root mean square is at most the largest magnitude; bfloat16 rounds the step by up to 2^-8.
  double error_bound(const BlockSummary& block) const override {
    if (!format_.is_relative()) return bound_;
    const double step = std::max(block.magnitude() * double{format_.relative} * (1 + 0x1p-8), 0x1p-118);
    return step * (stochastic_ || step > 0x1p112 ? 1 + kMargin : 0.5 + kMargin);
  }

 private:
  std::string description() const override { return "grid"; }
  std::size_t write(std::span<const float> source, std::byte* target, const RandomStream& random) const override {
    return kernels::grid_encode(format_, source.data(), source.size(), target, stochastic_ ? &random : nullptr);
  }
  bool read(ConstBytes source, const float* addend, std::span<float> target) const override {
    return kernels::grid_decode(format_, source.data(), source.size(), addend, target.data(), target.size());
  }

  // Of ten gradients with headers, measured on the demo's; a bound says nothing of their scale.
  std::size_t expected_bits() const {
    if (!format_.is_relative()) return format_.entropy ? 12 : 16;
    std::size_t bits = format_.entropy ? 8 : 15;  // at a step of 2 root mean squares
    for (float relative = 2; relative > format_.relative; relative /= 2) bits += 8;
    return bits;
  }

  const double bound_;
  const bool stochastic_;
  kernels::GridFormat format_;
};

constexpr double kRelative = 0.5;
constexpr double kBucket = 4096;

constexpr CodecSetting kSettings[] = {
    {.key = "entropy",
     .allowed = "none|rans",
     .default_value = 0,
     .meaning = "rans: an entropy code in place of widths by block: fewer bytes, a tenth of the speed",
     .quiet_if_default = true},
    {.key = "bound",
     .allowed = "none|1e-30..1e30",
     .default_value = 0,
     .meaning = "the largest error of every finite element; none: `relative` says the step",
     .quiet_if_default = true},
    {.key = "relative",
     .allowed = "0.03125..4.0",
     .default_value = kRelative,
     .meaning = "the step, over the root mean square of a bucket",
     .quiet_if_default = true},
    {.key = "bucket",
     .allowed = "256|512|1024|2048|4096|8192|16384|32768|65536",
     .default_value = kBucket,
     .meaning = "elements that share a step, with `relative`",
     .quiet_if_default = true},
    kRoundingSetting,
};

std::string_view conflict(const SettingValues& values) {
  const bool is_default = values.number("relative") == kRelative && values.number("bucket") == kBucket;
  return values.number("bound") > 0 && !is_default ? "relative and bucket don't go with bound" : "";
}

}  // namespace

constinit const CodecEntry kGridCodec = {
    .name = "grid",
    .summary = "multiples of a step within a stated error, in as many bits as each 32 of them need",
    .layout =
        "relative: for each bucket 2 bytes: step, bfloat16\n"
        "for each block of 32 a form in 4 bits: the width of its integers, 15 for form 14; form 15: float32\n"
        "for each block its zigzag integers, eight in as many bytes as each has bits, or its float32\n"
        "entropy=rans, after the steps: for each 128 elements a class in 4 bits; the states of eight coders, their\n"
        "words; what these leave out, or the blocks of class 15 (src/kernels/grid/grid.h)",
    .bound =
        "`bound`; relative: step * (1/2 + 2^-8), rounding=stochastic: step * (1 + 2^-8), with the step\n"
        "relative * root mean square of the bucket * (1 + 2^-8), or 2^-118",
    .source =
        "error-bounded quantization and widths by block: cuSZp (SC23), hZCCL (SC24); rANS: J. Duda (arXiv 1311.2540), "
        "F. Giesen (arXiv 1402.3392)",
    .settings = kSettings,
    .make = make<GridCodec>,
    .conflict = conflict,
    .examples =
        "grid:relative=0.25 grid:relative=0.5 grid:relative=1 grid:relative=0.5,bucket=256 "
        "grid:relative=0.5,bucket=32768 grid:relative=0.5,rounding=stochastic grid:bound=0.0001 "
        "grid:entropy=rans,relative=0.25 grid:entropy=rans,relative=0.5 grid:entropy=rans,relative=1 "
        "grid:entropy=rans,relative=0.5,bucket=32768 grid:entropy=rans,bound=0.0001",
};

Compression grid(GridOptions options) {
  return make_compression("grid", {{"entropy", options.entropy ? 1.0 : 0.0},
                                   {"bound", options.bound},
                                   {"relative", options.relative},
                                   {"bucket", static_cast<double>(options.bucket)},
                                   {"rounding", static_cast<double>(options.rounding)}});
}

}  // namespace qccl
