// Sends float32 as bfloat16 or float16.
//
// Rounding: to nearest even; infinity beyond the type's largest value. NaN: the canonical NaN. Error: at most 2^-8 |x|
// (bfloat16) or 2^-11 |x| (float16), at least half the smallest subnormal (2^-134, 2^-25); unbounded if x rounds to
// infinity.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "codec/registry.h"
#include "kernels/reduce/reduce.h"

namespace qccl {
namespace {

class CastCodec final : public FixedSizeCodec {
 public:
  explicit CastCodec(const SettingValues& values)
      : wire_(values.word("type") == "bf16" ? DataType::bfloat16 : DataType::float16) {}

  std::uint32_t bucket_size() const override { return 1; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return elements * 2; }
  double error_bound(const BlockSummary& block) const override {
    const double most = block.magnitude();
    const bool is_half = wire_ == DataType::float16;
    const auto widest = static_cast<float>(most);
    const float rounded = is_half ? to_float(to_float16(widest)) : to_float(to_bfloat16(widest));
    if (!std::isfinite(rounded)) return std::numeric_limits<double>::infinity();
    return is_half ? std::max(most * 0x1p-11, 0x1p-25) : std::max(most * 0x1p-8, 0x1p-134);
  }

  std::optional<kernels::device::PayloadFormat> device_format() const override {
    using kernels::device::PayloadKind;
    return kernels::device::PayloadFormat{.kind = wire_ == DataType::float16 ? PayloadKind::float16
                                                                             : PayloadKind::bfloat16};
  }

 private:
  std::string description() const override { return fmt::format("cast to {}", to_string(wire_)); }
  void write(std::span<const float> source, std::byte* target, const RandomStream&) const override {
    kernels::narrow(wire_, target, source.data(), source.size());
  }
  Status read(const std::byte* source, const float* addend, std::span<float> target) const override {
    if (addend == nullptr) {
      kernels::widen(wire_, target.data(), source, target.size());
    } else {
      kernels::reduce_widened(wire_, ReduceOp::sum, target.data(), addend, source, target.size());
    }
    return {};
  }

  const DataType wire_;
};

constexpr CodecSetting kSettings[] = {{.key = "type", .allowed = "bf16|fp16", .meaning = "16-bit type on the wire"}};

}  // namespace

constinit const CodecEntry kCastCodec = {
    .name = "cast",
    .summary = "16-bit floats on the wire",
    .layout = "one value of 16 bits an element, little-endian, in order",
    .bound = "2^-8 |x| (bf16), 2^-11 |x| (fp16); at least half the smallest subnormal",
    .source = "IEEE 754 binary16; bfloat16",
    .settings = kSettings,
    .make = make<CastCodec>,
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

}  // namespace qccl
