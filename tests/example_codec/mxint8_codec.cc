// MXINT8 of the OCP Microscaling Formats: blocks of 8-bit integers that share a power of two.
//
// With e = floor(log2(max |x|)) of a block, at least -127: code = x / 2^(e - 6) rounded to nearest,
// ties to even, clamped to -127..127; y = code * 2^(e - 6), exactly.
//
// | bytes          | content                                                             |
// |----------------|---------------------------------------------------------------------|
// | ceil(n / block)| e + 127 of each block; 255: it had a value that was not finite      |
// | n              | the codes, two's complement                                         |
//
// Error: at most 2^(e - 6), of values that are clamped; half of that of all others.
// Source: OCP Microscaling Formats (MX) Specification 1.0, where the block is 32.
#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/registry.h"

namespace qccl {
namespace {

constexpr int kBias = 127;
constexpr std::uint8_t kNotFinite = 255;

// e + 127 for a block whose largest magnitude is that.
int shared_exponent(double magnitude) { return magnitude > 0 ? std::max(std::ilogb(magnitude) + kBias, 0) : 0; }

double step(int exponent) { return std::ldexp(1.0, exponent - kBias - 6); }

class Mxint8Codec final : public FixedSizeCodec {
 public:
  explicit Mxint8Codec(std::uint32_t block) : block_(block) {}

  std::uint32_t bucket_size() const override { return block_; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return blocks(elements) + elements; }
  double error_bound(const BlockSummary& block) const override { return step(shared_exponent(block.magnitude())); }

 private:
  std::string description() const override { return "mxint8"; }

  void write(std::span<const float> source, std::byte* target, const RandomStream&) const override {
    std::byte* codes = target + blocks(source.size());
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
  }

  Status read(const std::byte* source, const float* addend, std::span<float> target) const override {
    for (std::size_t i = 0; i < target.size(); ++i) {
      const float y = decoded(source, target.size(), i);
      target[i] = addend == nullptr ? y : addend[i] + y;
    }
    return {};
  }

  // Every byte that may come is some number or NaN: a sender can't do harm.
  float decoded(const std::byte* source, std::size_t elements, std::size_t i) const {
    const int exponent = std::to_integer<int>(source[i / block_]);
    if (exponent == kNotFinite) return std::numeric_limits<float>::quiet_NaN();
    return static_cast<float>(load<std::int8_t>(&source[blocks(elements) + i]) * step(exponent));
  }

  std::size_t blocks(std::size_t elements) const { return (elements + block_ - 1) / block_; }

  const std::uint32_t block_;
};

constexpr CodecSetting kSettings[] = {
    {.key = "block", .allowed = "16|32|64|128", .default_value = 32, .meaning = "elements that share a power of two"},
};

std::shared_ptr<const Codec> make(const SettingValues& values) {
  const auto block = static_cast<std::uint32_t>(values.whole("block"));
  return std::make_shared<Mxint8Codec>(block);
}

}  // namespace

extern const CodecEntry kMxint8Codec;
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

}  // namespace qccl
