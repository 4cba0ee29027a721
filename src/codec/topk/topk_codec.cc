// Sparse: of each 4096 elements the share `density` that is largest by magnitude, with indices; all others are 0.
//
// Rule: kernels/topk/topk_reference.h. Layout: kernels/topk/topk.h. Of n elements (4096, or the rest at the end)
// exactly k = ceil(ceil(4096 density) n / 4096) are sent, so that the size is a function of the count alone.
// Rounding: float32 values are unchanged; int8 values to nearest even in 127 steps of the chunk's largest magnitude,
// int2 values to 1/3 of it or all of it.
// The error is the least for any k elements. Training needs error feedback: without it the small elements never arrive.
// A chunk with an element that is not finite decodes to NaN. Adding leaves elements that were not sent unchanged.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codec/registry.h"
#include "kernels/topk/topk.h"

namespace qccl {
namespace {

kernels::TopkValues values_of(std::string_view word) {
  if (word == "int8") return kernels::TopkValues::int8;
  return word == "int2" ? kernels::TopkValues::int2 : kernels::TopkValues::float32;
}

class TopkCodec final : public FixedSizeCodec {
 public:
  explicit TopkCodec(const SettingValues& values)
      : format_{static_cast<std::uint32_t>(std::ceil(values.number("density") * kernels::kTopkChunk)),
                values_of(values.word("values"))} {}

  std::uint32_t bucket_size() const override { return kernels::kTopkChunk; }
  std::size_t max_encoded_bytes(std::size_t elements) const override {
    return kernels::topk_encoded_bytes(format_, elements);
  }
  // An element that is not sent is no larger than one that is, and the norm includes both.
  double error_bound(const BlockSummary& block) const override {
    const double most = block.magnitude();
    const double lost = std::min(most, block.norm / std::sqrt(2.0));
    if (format_.values == kernels::TopkValues::float32) return lost;
    const double step = format_.values == kernels::TopkValues::int8 ? most / 127 * 0.5 : most / 3;
    return std::max(lost, std::max(step, 0x1p-126) * (1 + 0x1p-20));
  }

 private:
  std::string description() const override {
    return fmt::format("topk of {} in {}", format_.kept, kernels::kTopkChunk);
  }
  void write(std::span<const float> source, std::byte* target, const RandomStream&) const override {
    kernels::topk_encode(format_, source.data(), source.size(), target);
  }
  Status read(const std::byte* source, const float* addend, std::span<float> target) const override {
    if (kernels::topk_decode(format_, source, addend, target.data(), target.size())) return {};
    return Failure(ErrorKind::corrupt_data, "topk: indices that do not rise or lie outside of their chunk");
  }

  const kernels::TopkFormat format_;
};

constexpr CodecSetting kSettings[] = {
    {.key = "density",
     .allowed = "0.0002..0.5",
     .default_value = 0.01,
     .meaning = "share of the elements that is sent"},
    {.key = "values", .allowed = "fp32|int8|int2", .meaning = "type of the values sent"},
};

}  // namespace

constinit const CodecEntry kTopkCodec = {
    .name = "topk",
    .summary = "the largest elements and their indices; needs error feedback",
    .layout =
        "for each chunk of 4096 elements, of which k are sent:\n"
        "int8 and int2 only: scale, float32\n"
        "k values, float32, int8 or 2 bits, in the order of their indices\n"
        "k indices, 12 bits each, rising, padded to a byte",
    .bound =
        "max |x| (of a chunk of n together: ||x - y||^2 <= (1 - k / n) ||x||^2,\n"
        "values=int8: k (scale / 2)^2 more; scale = max |x| / 127, or 2^-126; values=int2: k scale^2 more;\n"
        "scale = max |x| / 3, or 2^-126)",
    .source = "top-k with error feedback (Stich, Cordonnier, Jaggi 2018, arXiv 1809.07599)",
    .settings = kSettings,
    .make = make<TopkCodec>,
    .examples =
        "topk:density=0.1 topk:density=0.01 topk:density=0.01,values=int8 topk:density=0.02,values=int2 "
        "topk:density=0.001",
};

Compression topk(TopkOptions options) {
  return make_compression("topk", {{"density", options.density}, {"values", options.int8_values ? 1.0 : 0.0}});
}

}  // namespace qccl
