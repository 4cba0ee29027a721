#include "example_codec/mxint8_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace qccl {
namespace {

constexpr CodecSetting kSettings[] = {
    {.key = "block", .allowed = "16|32|64|128", .default_value = 32, .meaning = "elements that share a power of two"},
};

Result<std::shared_ptr<const Codec>> make(const SettingValues& values) {
  const auto block = static_cast<std::uint32_t>(values.whole("block"));
  return std::shared_ptr<const Codec>(std::make_shared<Mxint8Codec>(block));
}

constexpr int kBias = 127;
constexpr std::uint8_t kNotFinite = 255;

// e + 127 for a block whose largest magnitude is that.
int shared_exponent(double magnitude) { return magnitude > 0 ? std::max(std::ilogb(magnitude) + kBias, 0) : 0; }

double step(int exponent) { return std::ldexp(1.0, exponent - kBias - 6); }

}  // namespace

constinit const CodecEntry kMxint8Codec = {
    .name = "mxint8",
    .summary = "blocks of 8-bit integers that share a power of two",
    .layout =
        "for each block a byte: e + 127, or 255 if it had a value that was not finite\n"
        "then a byte an element: its code, two's complement",
    .bound = "2^(e - 6), e = floor(log2(max |x|)) of the block, at least -127",
    .source = "OCP Microscaling Formats (MX) Specification 1.0",
    .settings = kSettings,
    .make = make,
    .examples = "mxint8:block=32",
};

std::size_t Mxint8Codec::encode(std::span<const float> source, Bytes target, const RandomStream&) const {
  QCCL_CHECK(target.size() >= max_encoded_bytes(source.size()));
  std::byte* codes = target.data() + blocks(source.size());
  for (std::size_t begin = 0; begin < source.size(); begin += block_) {
    const auto values = source.subspan(begin, std::min<std::size_t>(block_, source.size() - begin));
    double magnitude = 0;
    bool finite = true;
    for (const float value : values) {
      finite &= std::isfinite(value);
      magnitude = std::max(magnitude, std::fabs(static_cast<double>(value)));
    }
    const int exponent = finite ? shared_exponent(magnitude) : kNotFinite;
    target[begin / block_] = static_cast<std::byte>(exponent);
    for (const float value : values) {
      const double code = finite ? std::clamp(std::nearbyint(value / step(exponent)), -127.0, 127.0) : 0;
      *codes++ = static_cast<std::byte>(static_cast<std::int8_t>(code));
    }
  }
  return max_encoded_bytes(source.size());
}

Status Mxint8Codec::check_size(ConstBytes source, std::size_t elements) const {
  if (source.size() == max_encoded_bytes(elements)) return {};
  return Failure(ErrorKind::corrupt_data, fmt::format("mxint8: got {} bytes for {} elements, which take {}",
                                                      source.size(), elements, max_encoded_bytes(elements)));
}

// Every byte that may come is some number or NaN: a sender can't do harm.
float Mxint8Codec::decoded(ConstBytes source, std::size_t elements, std::size_t i) const {
  const int exponent = std::to_integer<int>(source[i / block_]);
  if (exponent == kNotFinite) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(load<std::int8_t>(&source[blocks(elements) + i]) * step(exponent));
}

Status Mxint8Codec::decode(ConstBytes source, std::span<float> target) const {
  QCCL_TRY(check_size(source, target.size()));
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = decoded(source, target.size(), i);
  return {};
}

Status Mxint8Codec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  QCCL_TRY(check_size(source, target.size()));
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = addend[i] + decoded(source, target.size(), i);
  return {};
}

double Mxint8Codec::error_bound(const BlockSummary& block) const { return step(shared_exponent(block.magnitude())); }

}  // namespace qccl
