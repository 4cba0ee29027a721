#include "codec/cast/cast_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/half.h"
#include "kernels/reduce/reduce.h"

namespace qccl {
namespace {

constexpr CodecSetting kSettings[] = {{.key = "type", .allowed = "bf16|fp16", .meaning = "16-bit type on the wire"}};

Result<std::shared_ptr<const Codec>> make(const SettingValues& values) {
  const DataType wire = values.word("type") == "bf16" ? DataType::bfloat16 : DataType::float16;
  return std::shared_ptr<const Codec>(std::make_shared<CastCodec>(wire));
}

}  // namespace

constinit const CodecEntry kCastCodec = {
    .name = "cast",
    .summary = "16-bit floats on the wire",
    .layout = "one value of 16 bits an element, little-endian, in order",
    .bound = "2^-8 |x| (bf16), 2^-11 |x| (fp16); at least half the smallest subnormal",
    .source = "IEEE 754 binary16; bfloat16",
    .settings = kSettings,
    .make = make,
    .only_float32 = true,
    .examples = "cast:type=bf16 cast:type=fp16",
};

Compression cast(DataType wire) {
  if (wire == DataType::bfloat16 || wire == DataType::float16) {
    return make_compression("cast", {{"type", wire == DataType::bfloat16 ? 0.0 : 1.0}});
  }
  throw Error({.kind = ErrorKind::invalid_argument,
               .message = fmt::format("cast to {} does not exist: allowed are bfloat16 and float16", to_string(wire))});
}

std::size_t CastCodec::encode(std::span<const float> source, Bytes target, const RandomStream&) const {
  QCCL_CHECK(target.size() >= max_encoded_bytes(source.size()));
  kernels::narrow(wire_, target.data(), source.data(), source.size());
  return max_encoded_bytes(source.size());
}

Status CastCodec::check_size(ConstBytes source, std::size_t elements) const {
  if (source.size() / 2 == elements && source.size() % 2 == 0) return {};
  return Failure(ErrorKind::corrupt_data, fmt::format("cast to {}: got {} bytes for {} elements, which take {}",
                                                      to_string(wire_), source.size(), elements, elements * 2));
}

Status CastCodec::decode(ConstBytes source, std::span<float> target) const {
  QCCL_TRY(check_size(source, target.size()));
  kernels::widen(wire_, target.data(), source.data(), target.size());
  return {};
}

Status CastCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  QCCL_TRY(check_size(source, target.size()));
  kernels::reduce_widened(wire_, ReduceOp::sum, target.data(), addend.data(), source.data(), target.size());
  return {};
}

double CastCodec::error_bound(const BlockSummary& block) const {
  const double most = block.magnitude();
  const bool is_half = wire_ == DataType::float16;
  const auto widest = static_cast<float>(most);
  const float rounded = is_half ? to_float(to_float16(widest)) : to_float(to_bfloat16(widest));
  if (!std::isfinite(rounded)) return std::numeric_limits<double>::infinity();
  return is_half ? std::max(most * 0x1p-11, 0x1p-25) : std::max(most * 0x1p-8, 0x1p-134);
}

}  // namespace qccl
