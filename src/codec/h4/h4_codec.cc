// Randomized Hadamard transform and Lloyd-Max codebook: blocks of 256 are rotated at random, so that any data looks
// normally distributed, and each coefficient takes the nearest of the 4, 8 or 16 levels that are best for that
// distribution.
//
// Rule, bounds and special blocks: kernels/h4/h4_reference.h. Layout: kernels/h4/h4.h. The random signs are a function
// of the stream's key, its rank and the block's index in the tensor: they differ between ranks, so that equal inputs do
// not make equal errors, and between phases and calls.
// A block with an element that is not finite decodes to NaN.
#include <fmt/format.h>

#include "codec/registry.h"
#include "kernels/h4/h4.h"

namespace qccl {
namespace {

// Ranks that rotate by the same signs would make equal errors of equal values, and those would add up.
kernels::H4Signs signs_of(const RandomStream& random) {
  const std::uint64_t key = kernels::mix64(kernels::mix64(random.key) ^ random.rank);
  return {.seed = static_cast<std::uint32_t>(key >> 32),
          .first_block = static_cast<std::uint32_t>(random.first_element / kernels::kH4Block)};
}

class H4Codec final : public KernelCodec<kernels::H4Format, kernels::h4_encoded_bytes, kernels::h4_decode> {
 public:
  explicit H4Codec(const SettingValues& values)
      : KernelCodec({values.whole("bits"), values.word("scale") == "unbiased"}) {}

  std::uint32_t bucket_size() const override { return kernels::kH4Block; }
  // The transforms spread an element's error over its block, so only the block's norm bounds it.
  double error_bound(const BlockSummary& block) const override {
    return block.norm_of(kernels::kH4Block) * (1 + 0x1p-6) + 0x1p-118;
  }

 private:
  std::string description() const override { return fmt::format("h4 of {} bits", format_.bits); }
  void write(std::span<const float> source, std::byte* target, const RandomStream& random) const override {
    kernels::h4_encode(format_, signs_of(random), source.data(), source.size(), target);
  }
};

constexpr CodecSetting kSettings[] = {
    {.key = "bits", .allowed = "2..4", .default_value = 4, .meaning = "of each coefficient's level"},
    {.key = "scale",
     .allowed = "unbiased|least",
     .default_value = 0,
     .meaning = "unbiased: the mean over the random signs is right; least: the least error",
     .quiet_if_default = true},
};

}  // namespace

constinit const CodecEntry kH4Codec = {
    .name = "h4",
    .summary = "blocks of 256, rotated at random, in 4, 8 or 16 levels: one error for all data",
    .layout =
        "8 bytes: seed of the random signs, number of the first block in the tensor; both 4 bytes\n"
        "for each block of 256 2 bytes: scale, bfloat16, negative if transformed twice\n"
        "for each block 32 * bits bytes: the codes of its 256 coefficients (the last block padded with zeros)",
    .bound =
        "||x|| of the block * (1 + 2^-6) + 2^-118 (of a block together, in the mean over signs: ||x - y||^2 = D "
        "||x||^2,\n"
        "unbiased D / (1 - D); D = .1175, .0345, .0095 for 2, 3, 4 bits)",
    .source = "DRIVE (arXiv 2105.08339), EDEN (arXiv 2108.08842); two transforms: arXiv 2605.06014",
    .settings = kSettings,
    .make = make<H4Codec>,
    .examples = "h4:bits=4 h4:bits=3 h4:bits=2 h4:bits=4,scale=least",
};

Compression h4(H4Options options) {
  return make_compression("h4", {{"bits", static_cast<double>(options.bits)}, {"scale", options.unbiased ? 0.0 : 1.0}});
}

}  // namespace qccl
