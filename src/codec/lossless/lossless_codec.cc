#include "codec/lossless/lossless_codec.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/lossless/lossless.h"

namespace qccl {
namespace {

Result<std::shared_ptr<const Codec>> make(const SettingValues&) {
  return std::shared_ptr<const Codec>(std::make_shared<LosslessCodec>());
}

Status checked(bool is_slice, std::size_t bytes, std::size_t elements) {
  if (is_slice) return {};
  return Failure(ErrorKind::corrupt_data, fmt::format("lossless: {} bytes are not {} elements", bytes, elements));
}

}  // namespace

constinit const CodecEntry kLosslessCodec = {
    .name = "lossless",
    .summary = "every bit, in fewer bytes: exponents coded in windows",
    .layout =
        "for each 1024 elements a byte that says how they are:\n"
        "all the same, as they are, as 16-bit values, or coded;\n"
        "coded: signs and mantissas as they are (8, 11 or 24 bits an element),\n"
        "then exponents in three levels of two bits, and those that are far from the usual as they are",
    .bound = "0",
    .source = "exponent coding: ZipNN, DietGPU; windows in place of entropy codes",
    .settings = {},
    .make = make,
    .examples = "lossless",
};

Compression lossless() { return make_compression("lossless", {}); }

std::size_t LosslessCodec::max_encoded_bytes(std::size_t elements) const {
  return kernels::lossless_max_bytes(elements);
}

std::size_t LosslessCodec::encode(std::span<const float> source, Bytes target, const RandomStream&) const {
  QCCL_CHECK(target.size() >= max_encoded_bytes(source.size()));
  return kernels::lossless_encode(source.data(), source.size(), target.data());
}

Status LosslessCodec::decode(ConstBytes source, std::span<float> target) const {
  const bool is_slice = kernels::lossless_decode(source.data(), source.size(), target.data(), target.size());
  return checked(is_slice, source.size(), target.size());
}

Status LosslessCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  const bool is_slice =
      kernels::lossless_decode_add(source.data(), source.size(), addend.data(), target.data(), target.size());
  return checked(is_slice, source.size(), target.size());
}

}  // namespace qccl
