// Scalar codecs: the specification that kernels must equal.
#include "codec/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"

namespace qccl {
namespace {

class CastCodec final : public Codec {
 public:
  explicit CastCodec(DataType wire) : wire_(wire) {}
  std::uint32_t bucket_size() const override { return 1; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return elements * 2; }

  std::size_t encode(std::span<const float> source, Bytes target) const override {
    for (std::size_t i = 0; i < source.size(); ++i) {
      store<std::uint16_t>(target.data() + 2 * i, wire_ == DataType::float16 ? to_float16(source[i]).bits
                                                                             : to_bfloat16(source[i]).bits);
    }
    return source.size() * 2;
  }
  float value(ConstBytes source, std::size_t i) const {
    const auto bits = load<std::uint16_t>(source.data() + 2 * i);
    return wire_ == DataType::float16 ? to_float(float16{bits}) : to_float(bfloat16{bits});
  }
  Status decode(ConstBytes source, std::span<float> target) const override {
    if (source.size() != target.size() * 2) return Failure(ErrorKind::corrupt_data, "cast: wrong size");
    for (std::size_t i = 0; i < target.size(); ++i) target[i] = value(source, i);
    return {};
  }
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override {
    if (source.size() != target.size() * 2) return Failure(ErrorKind::corrupt_data, "cast: wrong size");
    for (std::size_t i = 0; i < target.size(); ++i) target[i] = addend[i] + value(source, i);
    return {};
  }
  double error_bound(float minimum, float maximum) const override {
    const double most = std::max(std::abs(minimum), std::abs(maximum));
    return wire_ == DataType::float16 ? std::max(most * 0x1p-11, 0x1p-25) : std::max(most * 0x1p-8, 0x1p-134);
  }

 private:
  DataType wire_;
};

class MinmaxCodec final : public Codec {
 public:
  MinmaxCodec(int bits, std::uint32_t bucket) : bits_(bits), bucket_(bucket), levels_(std::exp2(bits) - 1) {}
  std::uint32_t bucket_size() const override { return bucket_; }
  std::size_t buckets(std::size_t n) const { return (n + bucket_ - 1) / bucket_; }
  std::size_t max_encoded_bytes(std::size_t n) const override {
    if (bits_ == 32) return n * 4;
    return buckets(n) * 8 + (n * static_cast<std::size_t>(bits_) + 7) / 8;
  }

  std::size_t encode(std::span<const float> source, Bytes target) const override {
    const std::size_t total = max_encoded_bytes(source.size());
    if (bits_ == 32) {
      std::memcpy(target.data(), source.data(), total);
      return total;
    }
    std::byte* codes = target.data() + buckets(source.size()) * 8;
    std::fill(codes, target.data() + total, std::byte{0});
    for (std::size_t k = 0; k < buckets(source.size()); ++k) {
      const std::size_t begin = k * bucket_;
      const std::size_t end = std::min<std::size_t>(begin + bucket_, source.size());
      float mn = source[begin], mx = source[begin];
      bool finite = true;
      for (std::size_t i = begin; i < end; ++i) {
        finite = finite && std::isfinite(source[i]);
        mn = std::min(mn, source[i]);
        mx = std::max(mx, source[i]);
      }
      const auto d = static_cast<float>(levels_);
      float unit = std::max(mx / d - mn / d, 0x1p-126f);
      if (!finite) unit = mn = canonical_nan();
      store(target.data() + k * 8, unit);
      store(target.data() + k * 8 + 4, mn);
      if (!finite) continue;
      const float twice = 2.0f * (1.0f / unit);
      for (std::size_t i = begin; i < end; ++i) {
        const float q = std::floor((source[i] * 0.5f - mn * 0.5f) * twice + 0.5f);
        put(codes, i, static_cast<std::uint64_t>(std::clamp(q, 0.0f, d)));
      }
    }
    return total;
  }
  Status decode(ConstBytes source, std::span<float> target) const override {
    const std::vector<float> zero;
    return decode_add(source, zero, target);
  }
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override {
    if (source.size() != max_encoded_bytes(target.size())) return Failure(ErrorKind::corrupt_data, "minmax: wrong size");
    const std::byte* codes = source.data() + buckets(target.size()) * 8;
    for (std::size_t i = 0; i < target.size(); ++i) {
      float y;
      if (bits_ == 32) {
        y = load<float>(source.data() + 4 * i);
      } else {
        const float unit = load<float>(source.data() + i / bucket_ * 8);
        const float mn = load<float>(source.data() + i / bucket_ * 8 + 4);
        y = (mn * 0.5f + static_cast<float>(get(codes, i)) * (unit * 0.5f)) * 2.0f;
      }
      target[i] = addend.empty() ? y : addend[i] + y;
    }
    return {};
  }
  double error_bound(float minimum, float maximum) const override {
    if (bits_ == 32) return 0;
    const double unit = std::max(double(maximum) / levels_ - double(minimum) / levels_, 0x1p-126);
    const double most = std::max(std::abs(minimum), std::abs(maximum));
    return unit / 2 + 4 * std::max(most * 0x1p-23, 0x1p-149);
  }

 private:
  void put(std::byte* codes, std::size_t i, std::uint64_t code) const {
    for (int bit = 0; bit < bits_; ++bit) {
      const std::size_t at = i * static_cast<std::size_t>(bits_) + static_cast<std::size_t>(bit);
      codes[at / 8] |= static_cast<std::byte>(((code >> bit) & 1u) << (at % 8));
    }
  }
  std::uint64_t get(const std::byte* codes, std::size_t i) const {
    std::uint64_t code = 0;
    for (int bit = 0; bit < bits_; ++bit) {
      const std::size_t at = i * static_cast<std::size_t>(bits_) + static_cast<std::size_t>(bit);
      code |= static_cast<std::uint64_t>((static_cast<unsigned>(codes[at / 8]) >> (at % 8)) & 1u) << bit;
    }
    return code;
  }
  const int bits_;
  const std::uint32_t bucket_;
  const double levels_;
};

}  // namespace

Result<std::shared_ptr<const Codec>> make_codec(const Compression& compression) {
  switch (compression.kind) {
    case Compression::Kind::none: return std::shared_ptr<const Codec>();
    case Compression::Kind::cast: return std::shared_ptr<const Codec>(std::make_shared<CastCodec>(compression.wire));
    case Compression::Kind::minmax: break;
  }
  return std::shared_ptr<const Codec>(std::make_shared<MinmaxCodec>(compression.bits, compression.bucket_size));
}

}  // namespace qccl
