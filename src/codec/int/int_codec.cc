// Symmetric integers: each block's elements as multiples of one scale, from -Q to Q, Q = 2^(bits - 1) - 1.
//
// Rule and proof of the bound: kernels/block_int/block_int_reference.h. Layout: kernels/block_int/block_int.h.
// Rounding: to nearest even; or stochastic, by a random byte of (key, rank, index in the tensor), stratified over
// ranks: the mean is right, and for a sum over N ranks the variance is scale^2 (N + 1) / 12. Zero is exact.
// A block with an element that is not finite decodes to NaN.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codec/registry.h"
#include "kernels/block_int/block_int.h"

namespace qccl {
namespace {

class IntCodec final
    : public KernelCodec<kernels::BlockIntFormat, kernels::block_int_encoded_bytes, kernels::block_int_decode> {
 public:
  explicit IntCodec(const SettingValues& values)
      : KernelCodec({values.whole("bits"), static_cast<std::uint32_t>(values.whole("block"))}),
        stochastic_(is_stochastic(values)) {}

  std::uint32_t bucket_size() const override { return format_.block_size; }
  double error_bound(const BlockSummary& block) const override {
    const double largest = std::ldexp(1.0, format_.bits - 1) - 1;
    const double scale = std::max(block.magnitude() / largest * (1 + 0x1p-7 + 0x1p-22), 0x1p-118);
    return stochastic_ ? scale : scale * (0.5 + largest * 0x1p-23);
  }

  std::optional<kernels::device::PayloadFormat> device_format() const override {
    return kernels::device::PayloadFormat{.kind = kernels::device::PayloadKind::block_int,
                                          .bits = static_cast<std::uint8_t>(format_.bits),
                                          .stochastic = stochastic_,
                                          .bucket = format_.block_size};
  }

 private:
  std::string description() const override {
    return fmt::format("int of {} bits in blocks of {}", format_.bits, format_.block_size);
  }
  void write(std::span<const float> source, std::byte* target, const RandomStream& random) const override {
    kernels::block_int_encode(format_, source.data(), source.size(), target, stochastic_ ? &random : nullptr);
  }

  const bool stochastic_;
};

constexpr CodecSetting kSettings[] = {
    {.key = "bits", .allowed = "2..8", .default_value = 8, .meaning = "of each element's integer"},
    {.key = "block",
     .allowed = "1..65536",
     .default_value = 128,
     .meaning = "elements that share one scale; multiples of 32 are fast"},
    kRoundingSetting,
};

}  // namespace

constinit const CodecEntry kIntCodec = {
    .name = "int",
    .summary = "each block's elements as integers of one scale, zero exact",
    .layout =
        "for each block 2 bytes: scale, bfloat16\n"
        "then the integers of all elements, `bits` bits each in two's complement, lowest bit first, padded to a byte",
    .bound =
        "scale * (1/2 + Q * 2^-23), rounding=stochastic: scale; Q = 2^(bits - 1) - 1,\n"
        "scale <= max |x| / Q * (1 + 2^-7 + 2^-22) of the block, or 2^-118",
    .source = "block absmax quantization; QSGD (Alistarh et al., 2017, arXiv 1610.02132) for random rounding",
    .settings = kSettings,
    .make = make<IntCodec>,
    .examples =
        "int:bits=8,block=128 int:bits=7,block=128 int:bits=6,block=64 int:bits=5,block=64 int:bits=4,block=32 "
        "int:bits=4,block=128 int:bits=3,block=32 int:bits=2,block=32 int:bits=4,block=32,rounding=stochastic",
};

Compression block_int(IntOptions options) {
  return make_compression("int", {{"bits", static_cast<double>(options.bits)},
                                  {"block", static_cast<double>(options.block)},
                                  {"rounding", static_cast<double>(options.rounding)}});
}

}  // namespace qccl
