#include "codec/int/int_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace qccl {
namespace {

constexpr CodecSetting kSettings[] = {
    {.key = "bits", .allowed = "2..8", .default_value = 8, .meaning = "of each element's integer"},
    {.key = "block",
     .allowed = "1..65536",
     .default_value = 128,
     .meaning = "elements that share one scale; multiples of 32 are fast"},
    kRoundingSetting,
};

Result<std::shared_ptr<const Codec>> make(const SettingValues& values) {
  const auto block = static_cast<std::uint32_t>(values.whole("block"));
  return std::shared_ptr<const Codec>(std::make_shared<IntCodec>(values.whole("bits"), block, is_stochastic(values)));
}

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
    .make = make,
    .examples =
        "int:bits=8,block=128 int:bits=7,block=128 int:bits=6,block=64 int:bits=5,block=64 int:bits=4,block=32 "
        "int:bits=4,block=128 int:bits=3,block=32 int:bits=2,block=32 int:bits=4,block=32,rounding=stochastic",
};

Compression block_int(IntOptions options) {
  return make_compression("int", {{"bits", static_cast<double>(options.bits)},
                                  {"block", static_cast<double>(options.block)},
                                  {"rounding", static_cast<double>(options.rounding)}});
}

std::size_t IntCodec::max_encoded_bytes(std::size_t elements) const {
  return kernels::block_int_encoded_bytes(format_, elements);
}

std::size_t IntCodec::encode(std::span<const float> source, Bytes target, const RandomStream& random) const {
  const std::size_t bytes = max_encoded_bytes(source.size());
  QCCL_CHECK(target.size() >= bytes);
  kernels::block_int_encode(format_, source.data(), source.size(), target.data(), stochastic_ ? &random : nullptr);
  return bytes;
}

Status IntCodec::check_size(ConstBytes source, std::size_t elements) const {
  const std::size_t bytes = max_encoded_bytes(elements);
  if (source.size() == bytes) return {};
  return Failure(ErrorKind::corrupt_data,
                 fmt::format("int of {} bits in blocks of {}: got {} bytes for {} elements, which take {}",
                             format_.bits, format_.block_size, source.size(), elements, bytes));
}

Status IntCodec::decode(ConstBytes source, std::span<float> target) const {
  QCCL_TRY(check_size(source, target.size()));
  kernels::block_int_decode(format_, source.data(), target.data(), target.size());
  return {};
}

Status IntCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  QCCL_TRY(check_size(source, target.size()));
  kernels::block_int_decode_add(format_, source.data(), addend.data(), target.data(), target.size());
  return {};
}

double IntCodec::error_bound(const BlockSummary& block) const {
  const double largest = std::ldexp(1.0, format_.bits - 1) - 1;
  const double scale = std::max(block.magnitude() / largest * (1 + 0x1p-7 + 0x1p-22), 0x1p-118);
  return stochastic_ ? scale : scale * (0.5 + largest * 0x1p-23);
}

}  // namespace qccl
