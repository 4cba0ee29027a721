// Payloads from any source: for any bytes, a decoder returns CorruptData or numbers, and touches
// nothing else. The result of encode() for any floats decodes within the bound.
//
// Input: a byte that chooses the codec (ignored if QCCL_FUZZ_CODEC names one), a byte for each of its
// settings, two for the number of elements, one for the action, and then, by action,
//   0: the payload;
//   1: bytes that are repeated up to the largest payload for this many elements;
//   2: floats to encode and decode;
//   3: four bytes that select the change to the payload, and floats to encode into it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "codec/registry.h"
#include "fuzz/fuzz.h"
#include "kernels/reduce/reduce.h"
#include "kernels/simd.h"

namespace qccl::fuzz {
namespace {

std::vector<const CodecEntry*> fuzzed_codecs(std::string_view only) {
  std::vector<const CodecEntry*> found;
  for (const CodecEntry* entry : codec_list()) {
    const bool has_codec = make_codec(Compression::parse(entry->name)).take_or_throw() != nullptr;
    if (has_codec && (only.empty() || entry->name == only)) found.push_back(entry);
  }
  return found;
}

const std::vector<const CodecEntry*>& chosen_codecs() {
  static const char* const name = std::getenv("QCCL_FUZZ_CODEC");
  static const auto chosen = fuzzed_codecs(name != nullptr ? name : "");
  return chosen;
}

// One of the values that the setting may have: whole numbers near a range's ends and inside it.
double value_of(const CodecSetting& setting, std::uint8_t choice) {
  std::vector<double> values;
  std::string_view rest = setting.allowed;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find('|'));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const auto dots = one.find("..");
    const double least = read_setting(setting, one.substr(0, dots)).value();
    const double most = dots == std::string_view::npos ? least : read_setting(setting, one.substr(dots + 2)).value();
    for (const double value : {least, least + 1, least + 2, 7.0, 100.0, (least + most) / 2, most / 8, most - 1, most}) {
      if (allows(setting, value)) values.push_back(value);
    }
  }
  return values[choice % values.size()];
}

Compression chosen_compression(const CodecEntry& entry, Input& input) {
  Compression value = Compression::parse(entry.name);
  for (std::size_t i = 0; i < entry.settings.size(); ++i) {
    value.settings[i] = value_of(entry.settings[i], input.byte());
  }
  return value;
}

template <class T>
struct Exact {
  explicit Exact(std::size_t size) : memory(new T[size]), span(memory.get(), size) {}
  std::unique_ptr<T[]> memory;
  std::span<T> span;
};

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

void decode_anything(const Codec& codec, std::size_t elements, ConstBytes payload) {
  Exact<std::byte> source(payload.size());
  std::copy(payload.begin(), payload.end(), source.span.begin());
  Exact<float> decoded(elements), sum(elements);
  std::fill(sum.span.begin(), sum.span.end(), 1.5f);
  const Status status = codec.decode(source.span, decoded.span);
  const Status added = codec.decode_add(source.span, sum.span, sum.span);
  require(status.ok() == added.ok(), "decode and decode_add agree whether a payload is good");
  if (!status.ok()) return require(status.error().kind == ErrorKind::corrupt_data, "the error is CorruptData");
  for (std::size_t i = 0; i < elements; ++i) {
    require(same(sum.span[i], 1.5f + decoded.span[i]), "decode_add is decode and one addition");
  }
}

void check_bucket(const Codec& codec, std::span<const float> values, std::span<const float> decoded) {
  BlockSummary block{HUGE_VAL, -HUGE_VAL, 0, values.size()};
  bool finite = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    require(std::isfinite(values[i]) || !std::isfinite(decoded[i]), "what is not finite never becomes a number");
    finite &= std::isfinite(values[i]);
    block.minimum = std::min<double>(block.minimum, values[i]);
    block.maximum = std::max<double>(block.maximum, values[i]);
    block.norm = std::hypot(block.norm, values[i]);
  }
  if (!finite) return;
  block.norm *= 1 + 1e-12;
  const double bound = codec.error_bound(block);
  for (std::size_t i = 0; i < values.size() && std::isfinite(bound); ++i) {
    const double error = std::fabs(static_cast<double>(decoded[i]) - static_cast<double>(values[i]));
    require(error <= bound, fmt::format("{} became {}, beyond the bound {}", values[i], decoded[i], bound));
  }
}

Exact<float> floats_of(std::span<const std::uint8_t> bytes) {
  Exact<float> values(bytes.size() / sizeof(float));
  if (!values.span.empty()) std::memcpy(values.memory.get(), bytes.data(), values.span.size_bytes());
  return values;
}

std::vector<std::byte> encoded(const Codec& codec, const RandomStream& random, std::span<const float> values) {
  Exact<std::byte> room(codec.max_encoded_bytes(values.size()));
  const std::size_t size = codec.encode(values, room.span, random);
  require(size <= room.span.size(), "encode() keeps to max_encoded_bytes()");
  return {room.span.begin(), room.span.begin() + static_cast<std::ptrdiff_t>(size)};
}

void decode_repeated(const Codec& codec, std::size_t elements, std::span<const std::uint8_t> pattern) {
  std::vector<std::byte> payload(codec.max_encoded_bytes(elements));
  for (std::size_t i = 0; i < payload.size() && !pattern.empty(); ++i) {
    payload[i] = static_cast<std::byte>(pattern[i % pattern.size()]);
  }
  decode_anything(codec, elements, payload);
}

void decode_damaged(const Codec& codec, const RandomStream& random, Input& input) {
  const std::uint32_t place = input.number();
  const std::uint8_t change = input.byte(), cut = input.byte();
  const auto values = floats_of(input.rest());
  auto payload = encoded(codec, random, values.span);
  if (payload.empty()) return;
  payload[place % payload.size()] ^= static_cast<std::byte>(change);
  if (cut > 128) payload.resize(payload.size() - std::min<std::size_t>(payload.size(), cut - 128u));
  decode_anything(codec, values.span.size(), payload);
}

void check_residual(const Codec& codec, const RandomStream& random, std::span<const float> values, ConstBytes bytes,
                    std::span<const float> decoded) {
  const float factor = random.first_element % 8 == 0 ? 1.0f : 3.0f;
  Exact<float> residual(values.size()), expected(values.size());
  std::fill(residual.span.begin(), residual.span.end(), 2.5f);
  std::fill(expected.span.begin(), expected.span.end(), 2.5f);
  Exact<std::byte> room(codec.max_encoded_bytes(values.size()));
  const auto written = codec.encode_with_residual(values, room.span, random, factor, residual.span.data());
  if (!written) return;
  require(*written == bytes.size() && std::equal(bytes.begin(), bytes.end(), room.span.begin()),
          "encode_with_residual() writes what encode() writes");
  kernels::keep_residual(values.data(), decoded.data(), factor, expected.span.data(), values.size());
  require(std::equal(residual.span.begin(), residual.span.end(), expected.span.begin(), same),
          "encode_with_residual() keeps what encode() takes away");
}

void encode_anything(const Codec& codec, const RandomStream& random, std::span<const std::uint8_t> bytes) {
  const auto values = floats_of(bytes);
  Exact<float> decoded(values.span.size());
  const auto bytes_of_it = encoded(codec, random, values.span);
  Exact<std::byte> payload(bytes_of_it.size());
  std::copy(bytes_of_it.begin(), bytes_of_it.end(), payload.span.begin());
  require(codec.decode(payload.span, decoded.span).ok(), "what was encoded decodes");
  check_residual(codec, random, values.span, bytes_of_it, decoded.span);
  for (std::size_t begin = 0; begin < values.span.size(); begin += codec.bucket_size()) {
    const std::size_t count = std::min<std::size_t>(codec.bucket_size(), values.span.size() - begin);
    check_bucket(codec, values.span.subspan(begin, count), decoded.span.subspan(begin, count));
  }
}

}  // namespace
}  // namespace qccl::fuzz

// With `--names` instead of libFuzzer's flags, prints the codecs' names.
extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {
  if (*count > 1 && std::string_view((*words)[1]) == "--names") {
    for (const auto* entry : qccl::fuzz::fuzzed_codecs("")) fmt::print("{}\n", entry->name);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qccl;
  fuzz::Input input(data, size);
  const auto& codecs = fuzz::chosen_codecs();
  const CodecEntry& entry = *codecs[input.byte() % codecs.size()];
  const Compression compression = fuzz::chosen_compression(entry, input);
  const std::uint32_t number = input.number();
  const std::size_t elements = number % 5000 >> (number >> 14);  // mostly few, because those are faster
  const std::uint8_t what = input.byte();
  const auto made = make_codec(compression);
  if (!made.ok()) return 0;  // incompatible settings
  static const auto targets = kernels::simd_targets();
  kernels::force_simd(targets[what / 4 % targets.size()]);
  const Codec& codec = *made.value();
  const RandomStream random{.key = elements, .first_element = what * 1000u, .world = 4};
  switch (what % 4) {
    case 0: fuzz::decode_anything(codec, elements, std::as_bytes(input.rest())); break;
    case 1: fuzz::decode_repeated(codec, elements, input.rest()); break;
    case 2: fuzz::encode_anything(codec, random, input.rest()); break;
    case 3: fuzz::decode_damaged(codec, random, input); break;
  }
  return 0;
}
