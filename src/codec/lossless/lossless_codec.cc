// Every bit of float32, and of bfloat16 and float16 tensors, in fewer bytes: exponents in windows, other bits
// unchanged.
//
// Rule: kernels/lossless/lossless_reference.h. Layout: kernels/lossless/lossless.h. The size depends on the values:
// normally distributed data takes two thirds of bfloat16, five sixths of float32, six sevenths of float16; a constant
// block of 1024 takes 5 bytes; random bits take one byte a block more than their own size.
#include "kernels/lossless/lossless.h"

#include <fmt/format.h>

#include "base/log.h"
#include "codec/registry.h"

namespace qccl {
namespace {

class LosslessCodec final : public Codec {
 public:
  std::uint32_t bucket_size() const override { return 1; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return kernels::lossless_max_bytes(elements); }
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream&) const override {
    QCCL_CHECK(target.size() >= max_encoded_bytes(source.size()));
    return kernels::lossless_encode(source.data(), source.size(), target.data());
  }
  Status decode(ConstBytes source, std::span<float> target) const override { return read(source, nullptr, target); }
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override {
    QCCL_CHECK(addend.size() == target.size());
    return read(source, addend.data(), target);
  }
  double error_bound(const BlockSummary&) const override { return 0; }
  bool is_exact() const override { return true; }

 private:
  static Status read(ConstBytes source, const float* addend, std::span<float> target) {
    if (kernels::lossless_decode(source.data(), source.size(), addend, target.data(), target.size())) return {};
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("lossless: {} bytes are not {} elements", source.size(), target.size()));
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
