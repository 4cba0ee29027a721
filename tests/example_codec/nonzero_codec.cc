// Sparse data, exactly: a bit for each element and the bytes of those that are not zero.
//
// | bytes       | content                                                                  |
// |-------------|--------------------------------------------------------------------------|
// | ceil(n / 8) | bit i % 8 of byte i / 8: element i has a bit set; the bits beyond n are 0 |
// | 4 each      | the elements whose bit is set, float32, in order                         |
//
// Error: none. -0 and NaNs have bits set, so they come back too.
#include <algorithm>
#include <bit>

#include "codec/registry.h"

namespace qccl {
namespace {

class NonzeroCodec final : public VariableSizeCodec {
 public:
  std::uint32_t bucket_size() const override { return 1; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return flag_bytes(elements) + 4 * elements; }
  // Gradients of which one element in sixteen is not zero.
  std::size_t expected_encoded_bytes(std::size_t elements, DataType) const override {
    return flag_bytes(elements) + elements / 4;
  }
  double error_bound(const BlockSummary&) const override { return 0; }
  bool is_exact() const override { return true; }

 private:
  static std::size_t flag_bytes(std::size_t elements) { return (elements + 7) / 8; }
  std::string description() const override { return "nonzero"; }

  std::size_t write(std::span<const float> source, std::byte* target, const RandomStream&) const override {
    std::fill_n(target, flag_bytes(source.size()), std::byte{0});
    std::byte* values = target + flag_bytes(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(source[i]) == 0) continue;
      target[i / 8] |= std::byte{1} << (i % 8);
      store(values, source[i]);
      values += sizeof(float);
    }
    return static_cast<std::size_t>(values - target);
  }

  bool read(ConstBytes source, const float* addend, std::span<float> target) const override {
    const std::size_t flags = flag_bytes(target.size());
    if (source.size() < flags) return false;
    std::size_t values = 0;
    for (const std::byte each : source.first(flags))
      values += static_cast<std::size_t>(std::popcount(std::to_integer<unsigned>(each)));
    const std::size_t unused = 8 * flags - target.size();
    const bool has_padding = unused > 0 && (source[flags - 1] >> (8 - unused)) != std::byte{0};
    if (has_padding || source.size() != flags + 4 * values) return false;
    const std::byte* value = source.data() + flags;
    for (std::size_t i = 0; i < target.size(); ++i) {
      float y = 0;
      if ((source[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0}) {
        y = load<float>(value);
        value += sizeof(float);
      }
      target[i] = addend == nullptr ? y : addend[i] + y;
    }
    return true;
  }
};

}  // namespace

extern const CodecEntry kNonzeroCodec;
constinit const CodecEntry kNonzeroCodec = {
    .name = "nonzero",
    .summary = "sparse data, exactly",
    .layout =
        "a bit an element: it is not zero\n"
        "the elements that are not, float32",
    .bound = "0",
    .source = "",
    .settings = {},
    .make = [](const SettingValues&) -> std::shared_ptr<const Codec> { return std::make_shared<NonzeroCodec>(); },
};

}  // namespace qccl
