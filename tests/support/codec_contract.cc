#include "support/codec_contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <set>

#include "codec/registry.h"
#include "kernels/reduce/reduce.h"
#include "kernels/simd.h"
#include "kernels/test_values.h"

namespace qccl::testing {
namespace {

using kernels::ValueFamily;

constexpr RandomStream kRandom{.key = 0x1234567890ABCDEF, .first_element = 0, .rank = 1, .world = 3};

// A copy in a separate allocation of exactly its size, so that the address sanitizer detects an access
// one byte beyond it. The first `offset` bytes are unused.
template <class T>
class Exact {
 public:
  explicit Exact(std::size_t size, std::size_t offset = 0)
      : memory_(new std::byte[size * sizeof(T) + offset]), span_(reinterpret_cast<T*>(memory_.get() + offset), size) {}
  explicit Exact(std::span<const T> values, std::size_t offset = 0) : Exact(values.size(), offset) {
    std::copy(values.begin(), values.end(), span_.begin());
  }
  std::span<T> span() const { return span_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::span<T> span_;
};

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return bits_of(x) == bits_of(y) || (std::isnan(x) && std::isnan(y)); });
}

class Contract {
 public:
  explicit Contract(const Codec& codec) : codec_(codec), bucket_(codec.bucket_size()) {}

  std::string check() {
    for (const std::size_t count : counts()) {
      if (codec_.max_encoded_bytes(count) > codec_.max_encoded_bytes(count + 1)) return "the limit of bytes falls";
      for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float16}) {
        if (codec_.expected_encoded_bytes(count, type) > codec_.max_encoded_bytes(count)) {
          return fmt::format("{} elements: more bytes are expected than are allowed", count);
        }
      }
      const auto families = kernels::families_with_nonfinite();
      for (std::size_t i = 0; i<families.size(); i += count> kManyElements ? 4 : 1) {
        const ValueFamily& family = families[i];
        const std::vector<float> values = family.values(count, static_cast<std::uint32_t>(count + 1));
        std::string broken = check_values(values);
        if (!broken.empty()) return fmt::format("{} elements, {}: {}", count, family.name, broken);
      }
    }
    for (const std::size_t count : counts()) {
      const std::string broken = check_neighbours(kernels::finite_families()[0].values(count, 9));
      if (!broken.empty()) return fmt::format("{} elements: {}", count, broken);
    }
    return {};
  }

 private:
  using Encoded = std::vector<std::byte>;

  // Counts around the bucket's ends, up to about three buckets and a slice.
  std::set<std::size_t> counts() const {
    std::set<std::size_t> counts = {0, 1, 2, 7, 63, 64, 65, 1000};
    for (const std::size_t count : {bucket_ - 1, bucket_, bucket_ + 1, 2 * bucket_, 3 * bucket_ + 5}) {
      if (count <= kMostElements) counts.insert(count);
    }
    return counts;
  }

  std::string check_values(const std::vector<float>& values) {
    Encoded first;
    const std::string before = kernels::simd_target();
    std::string broken;
    for (const std::string_view target : kernels::simd_targets()) {
      kernels::force_simd(target);
      const Encoded bytes = encode(values, kRandom, broken);
      if (broken.empty() && !first.empty() && bytes != first) broken = "encodes to other bytes than elsewhere";
      if (first.empty()) first = bytes;
      if (broken.empty()) broken = check_decoded(values, bytes);
      if (!broken.empty()) broken = fmt::format("on {}: {}", target, broken);
      if (!broken.empty()) break;
    }
    kernels::force_simd(before);
    if (broken.empty()) broken = check_cuts(values, first);
    if (broken.empty()) broken = check_damage(values.size(), first);
    return broken;
  }

  Encoded encode(std::span<const float> values, const RandomStream& random, std::string& broken) const {
    const Exact<float> source(values), shifted(values, kShift);
    const std::size_t limit = codec_.max_encoded_bytes(values.size());
    const Exact<std::byte> target(limit, 1);
    const std::size_t bytes = codec_.encode(shifted.span(), target.span(), random);
    if (bytes > limit) {
      broken = fmt::format("{} bytes where {} are the limit", bytes, limit);
      return {};
    }
    const Exact<std::byte> again(limit);
    const bool same = codec_.encode(source.span(), again.span(), random) == bytes &&
                      std::equal(target.span().begin(), target.span().begin() + static_cast<std::ptrdiff_t>(bytes),
                                 again.span().begin());
    if (!same) broken = "the same values and random stream encode to other bytes";
    return {target.span().begin(), target.span().begin() + static_cast<std::ptrdiff_t>(bytes)};
  }

  std::string check_decoded(const std::vector<float>& values, const Encoded& bytes) const {
    const Exact<std::byte> source(bytes, 3);
    const Exact<float> decoded(values.size(), kShift);
    const Status status = codec_.decode(source.span(), decoded.span());
    if (!status.ok()) return "does not decode: " + status.error().message;
    const Exact<float> aligned(values.size());
    const bool is_same = codec_.decode(source.span(), aligned.span()).ok() && same_bits(aligned.span(), decoded.span());
    if (!is_same) return "decodes to other values at another address";
    for (std::size_t begin = 0; begin < values.size(); begin += bucket_) {
      const std::size_t size = std::min<std::size_t>(bucket_, values.size() - begin);
      std::string broken =
          check_bucket(std::span(values).subspan(begin, size), decoded.span().subspan(begin, size), begin);
      if (!broken.empty()) return broken;
    }
    std::string broken = check_sum(source.span(), decoded.span());
    return broken.empty() ? check_residual(values, bytes, decoded.span()) : broken;
  }

  // Error feedback's residual is the same whether it is computed in one step or in three.
  std::string check_residual(const std::vector<float>& values, const Encoded& bytes,
                             std::span<const float> decoded) const {
    const Exact<float> source{std::span<const float>(values)};
    for (const float factor : {1.0f, 3.0f}) {
      std::vector<float> expected = kernels::finite_families()[0].values(values.size(), 8);
      const Exact<float> residual(std::span<const float>(expected), kShift);
      const Exact<std::byte> target(codec_.max_encoded_bytes(values.size()), 1);
      const auto written =
          codec_.encode_with_residual(source.span(), target.span(), kRandom, factor, residual.span().data());
      if (!written) continue;
      kernels::keep_residual(values.data(), decoded.data(), factor, expected.data(), values.size());
      const bool same_bytes = *written == bytes.size() && std::equal(bytes.begin(), bytes.end(), target.span().begin());
      if (!same_bytes) return "encode_with_residual writes other bytes than encode";
      if (!same_bits(residual.span(), expected)) return "encode_with_residual keeps another residual";
    }
    return {};
  }

  std::string check_bucket(std::span<const float> values, std::span<const float> decoded, std::size_t begin) const {
    BlockSummary block{HUGE_VAL, -HUGE_VAL, 0, values.size()};
    bool finite = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) {
        if (std::isfinite(decoded[i])) return fmt::format("element {}: {} became {}", begin + i, values[i], decoded[i]);
        finite = false;
      }
      const auto value = static_cast<double>(values[i]);
      block.minimum = std::min(block.minimum, value);
      block.maximum = std::max(block.maximum, value);
      block.norm = std::hypot(block.norm, value);
    }
    if (!finite) return {};
    block.norm *= 1 + 1e-12;
    const double bound = codec_.error_bound(block);
    const double looser = codec_.error_bound({block.minimum, block.maximum});
    if (!(bound >= 0) || !(looser >= bound)) return fmt::format("bound {}, {} without norm and count", bound, looser);
    if (codec_.is_exact() && !std::equal(values.begin(), values.end(), decoded.begin(),
                                         [](float x, float y) { return bits_of(x) == bits_of(y); })) {
      return "an exact codec loses bits";
    }
    for (std::size_t i = 0; i < values.size() && std::isfinite(bound); ++i) {
      const double error = std::fabs(static_cast<double>(decoded[i]) - static_cast<double>(values[i]));
      if (!(error <= bound)) {
        return fmt::format("element {}: {} became {}, beyond the bound {}", begin + i, values[i], decoded[i], bound);
      }
    }
    return {};
  }

  std::string check_sum(ConstBytes source, std::span<const float> decoded) const {
    const std::vector<float> addend = kernels::finite_families()[0].values(decoded.size(), 7);
    std::vector<float> expected(addend);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += decoded[i];
    const Exact<float> in_place(std::span<const float>(addend), 2 * kShift);
    const Exact<float> target(decoded.size(), kShift);
    const bool ok = codec_.decode_add(source, in_place.span(), target.span()).ok() &&
                    codec_.decode_add(source, in_place.span(), in_place.span()).ok();
    if (!ok) return "decodes but does not add";
    if (!same_bits(target.span(), expected)) return "decode_add is not decode and one addition";
    return same_bits(in_place.span(), expected) ? "" : "decode_add in place differs";
  }

  // Encoding in two slices, where the second knows its first element, gives the same values.
  std::string check_cuts(const std::vector<float>& values, const Encoded& whole) const {
    std::vector<float> expected(values.size());
    codec_.decode(whole, expected).take_or_throw();
    const std::size_t buckets = values.size() / bucket_;
    for (const std::size_t first : {std::size_t{1}, buckets / 2}) {
      const std::size_t cut = first * bucket_;
      if (cut == 0 || cut >= values.size()) continue;
      std::vector<float> decoded(values.size());
      std::string broken;
      const std::span<const float> all(values);
      RandomStream later = kRandom;
      later.first_element = cut;
      codec_.decode(encode(all.first(cut), kRandom, broken), std::span(decoded).first(cut)).take_or_throw();
      codec_.decode(encode(all.subspan(cut), later, broken), std::span(decoded).subspan(cut)).take_or_throw();
      if (!broken.empty()) return broken;
      if (!same_bits(decoded, expected)) return fmt::format("cut at {} it decodes to other values", cut);
    }
    return {};
  }

  // An element that is not finite spoils its own bucket, all of it if the bucket shares a scale, and no other.
  std::string check_neighbours(const std::vector<float>& values) const {
    std::string broken;
    std::vector<float> expected(values.size()), decoded(values.size());
    codec_.decode(encode(values, kRandom, broken), expected).take_or_throw();
    for (const float poison : {std::nanf("5"), HUGE_VALF, -HUGE_VALF}) {
      for (const std::size_t at : {std::size_t{0}, values.size() / 2, values.size() - 1}) {
        if (at >= values.size()) continue;
        std::vector<float> poisoned = values;
        poisoned[at] = poison;
        codec_.decode(encode(poisoned, kRandom, broken), decoded).take_or_throw();
        if (!broken.empty()) return broken;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const bool same = same_bits(std::span(decoded).subspan(i, 1), std::span(expected).subspan(i, 1));
          if (i / bucket_ != at / bucket_ && !same) return fmt::format("{} at {} changes element {}", poison, at, i);
          if (i / bucket_ == at / bucket_ && bucket_ > 1 && !std::isnan(decoded[i])) {
            return fmt::format("{} at {} leaves {} in its bucket at {}", poison, at, decoded[i], i);
          }
        }
      }
    }
    return {};
  }

  // Payloads of a wrong size are rejected; those of a right size do no harm, whatever their bytes.
  std::string check_damage(std::size_t count, const Encoded& bytes) {
    const Exact<float> target(count);
    std::set<std::size_t> sizes = {bytes.size() + 1, bytes.size() + 8};
    for (std::size_t size = bytes.size(); size > 0 && sizes.size() < 40; size = size > 24 ? size * 7 / 8 : size - 1) {
      sizes.insert(size - 1);
    }
    for (const std::size_t size : sizes) {
      Encoded other = bytes;
      other.resize(size);
      const Exact<std::byte> source{std::span<const std::byte>(other)};
      for (const bool adds : {false, true}) {
        const Status status = adds ? codec_.decode_add(source.span(), target.span(), target.span())
                                   : codec_.decode(source.span(), target.span());
        if (status.ok()) return fmt::format("{} bytes of {} are taken", size, bytes.size());
        if (status.error().kind != ErrorKind::corrupt_data) return "another error than CorruptData";
      }
    }
    for (int round = 0; round < 20 && !bytes.empty(); ++round) {
      Encoded other = bytes;
      for (unsigned i = 0; i <= random_() % 4; ++i) other[random_() % other.size()] = static_cast<std::byte>(random_());
      const Exact<std::byte> source{std::span<const std::byte>(other)};
      const bool decodes = codec_.decode(source.span(), target.span()).ok();
      if (decodes != codec_.decode_add(source.span(), target.span(), target.span()).ok()) {
        return "decode and decode_add disagree whether a payload is good";
      }
    }
    return {};
  }

  static constexpr std::size_t kShift = sizeof(float);  // floats at this offset are not aligned to a vector
  static constexpr std::size_t kMostElements = 200'000;
  static constexpr std::size_t kManyElements = 20'000;  // more are not tried with every family of values

  const Codec& codec_;
  const std::size_t bucket_;
  kernels::Random random_{1};
};

// The values at the ends of every alternative of a setting.
std::set<double> extremes_of(const CodecSetting& setting) {
  std::set<double> values;
  std::string_view rest = setting.allowed;
  while (!rest.empty()) {
    const std::string_view alternative = rest.substr(0, rest.find('|'));
    rest.remove_prefix(std::min(rest.size(), alternative.size() + 1));
    const auto dots = alternative.find("..");
    for (const std::string_view end :
         {alternative.substr(0, dots), dots == std::string_view::npos ? alternative : alternative.substr(dots + 2)}) {
      values.insert(read_setting(setting, end).value());
    }
  }
  return values;
}

}  // namespace

std::vector<Compression> default_compressions() {
  std::vector<Compression> found;
  for (const CodecEntry* entry : codec_list()) {
    const Compression compression = Compression::parse(entry->name);
    if (make_codec(compression).take_or_throw() != nullptr) found.push_back(compression);
  }
  return found;
}

std::vector<Compression> extreme_compressions() {
  std::vector<Compression> found;
  const auto add = [&](const Compression& compression) {
    const bool is_new = std::find(found.begin(), found.end(), compression) == found.end();
    if (is_new && make_codec(compression).ok()) found.push_back(compression);
  };
  for (const Compression& compression : default_compressions()) {
    const CodecEntry& entry = *entry_of(compression);
    add(compression);
    for (const Compression& example : examples_of(entry)) add(example);
    for (std::size_t i = 0; i < entry.settings.size(); ++i) {
      for (const double value : extremes_of(entry.settings[i])) {
        Compression other = compression;
        other.settings[i] = value;
        add(other);
      }
    }
  }
  return found;
}

std::string beyond_bound(const Codec& codec, std::span<const float> sent, std::span<const float> received,
                         double rounding) {
  const std::size_t bucket = codec.bucket_size();
  for (std::size_t begin = 0; begin < sent.size(); begin += bucket) {
    const auto values = sent.subspan(begin, std::min(bucket, sent.size() - begin));
    BlockSummary block{.norm = 0, .elements = values.size()};
    const bool is_finite = std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
    for (const float value : values) {
      block.minimum = std::min(block.minimum, static_cast<double>(value));
      block.maximum = std::max(block.maximum, static_cast<double>(value));
      block.norm = std::hypot(block.norm, static_cast<double>(value));
    }
    const double bound = is_finite ? codec.error_bound(block) + rounding * block.magnitude() : 0;
    for (std::size_t i = begin; i < begin + values.size(); ++i) {
      const double error = std::fabs(static_cast<double>(received[i]) - sent[i]);
      const bool holds = is_finite ? error <= bound : std::isfinite(sent[i]) || !std::isfinite(received[i]);
      if (!holds) return fmt::format("element {}: {} became {}, bound {}", i, sent[i], received[i], bound);
    }
  }
  return {};
}

std::string broken_promise(const Codec& codec) { return Contract(codec).check(); }

}  // namespace qccl::testing
