// Every bit of float32, and of bfloat16 and float16 tensors, in fewer bytes: exponents in windows, other bits
// unchanged.
//
// Rule: kernels/lossless/lossless_reference.h. Layout: kernels/lossless/lossless.h. The size depends on the values:
// normally distributed data takes two thirds of bfloat16, five sixths of float32, six sevenths of float16; a constant
// block of 1024 takes 5 bytes; random bits take one byte a block more than their own size.
#include "kernels/lossless/lossless.h"

#include "codec/registry.h"

namespace qccl {
namespace {

class LosslessCodec final : public VariableSizeCodec {
 public:
  std::uint32_t bucket_size() const override { return 1; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return kernels::lossless_max_bytes(elements); }
  std::size_t expected_encoded_bytes(std::size_t elements, DataType type) const override {
    if (type == DataType::bfloat16) return elements * 4 / 3;
    return type == DataType::float16 ? elements * 12 / 7 : elements * 10 / 3;
  }
  double error_bound(const BlockSummary&) const override { return 0; }
  bool is_exact() const override { return true; }

 private:
  std::string description() const override { return "lossless"; }
  std::size_t write(std::span<const float> source, std::byte* target, const RandomStream&) const override {
    return kernels::lossless_encode(source.data(), source.size(), target);
  }
  bool read(ConstBytes source, const float* addend, std::span<float> target) const override {
    return kernels::lossless_decode(source.data(), source.size(), addend, target.data(), target.size());
  }
};

}  // namespace

constinit const CodecEntry kLosslessCodec = {
    .name = "lossless",
    .summary = "every bit, in fewer bytes: exponents coded in windows",
    .layout =
        "for each 1024 elements a byte with their form: all the same, unchanged, 16-bit values, or coded\n"
        "coded: signs and mantissas (8, 11 or 24 bits an element), then exponents in three levels of two bits,\n"
        "then the exponents outside of the levels",
    .bound = "0",
    .source = "exponent coding: ZipNN, DietGPU; windows in place of entropy codes",
    .settings = {},
    .make = [](const SettingValues&) -> std::shared_ptr<const Codec> { return std::make_shared<LosslessCodec>(); },
    .examples = "lossless",
};

Compression lossless() { return make_compression("lossless", {}); }

}  // namespace qccl
