// Compression values as text, checked.
#include "qccl/compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "qccl/error.h"

namespace qccl {
namespace {

constexpr std::string_view kAllowed = "none, cast:type=bf16|fp16, minmax:bits=1..8|16|32,bucket_size=1..65536";

[[noreturn]] void refuse(std::string_view spec, const std::string& why) {
  throw Error({.kind = ErrorKind::invalid_argument,
               .message = fmt::format("compression '{}': {}; allowed: {}", spec, why, kAllowed)});
}

// What is wrong with it, or "".
std::string minmax_fault(int bits, std::int64_t bucket_size) {
  const bool bits_exist = (bits >= 1 && bits <= 8) || bits == 16 || bits == 32;
  if (!bits_exist) return fmt::format("bits={} does not exist", bits);
  if (bucket_size < 1 || bucket_size > 65536) return fmt::format("bucket_size={} is out of range", bucket_size);
  return {};
}

std::int64_t parse_number(std::string_view spec, std::string_view key, std::string_view text) {
  std::int64_t value = -1;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end || value < 0 || value > 1'000'000'000) {
    refuse(spec, fmt::format("{}={} is no whole number in range", key, text));
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (auto at = text.find(separator); at != std::string_view::npos; at = text.find(separator)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  return parts;
}

void set_key(std::string_view spec, std::string_view key, std::string_view value, Compression& target) {
  if (target.kind == Compression::Kind::minmax && key == "bits") {
    target.bits = static_cast<int>(parse_number(spec, key, value));
  } else if (target.kind == Compression::Kind::minmax && key == "bucket_size") {
    target.bucket_size = static_cast<std::uint32_t>(parse_number(spec, key, value));
  } else if (target.kind == Compression::Kind::cast && key == "type") {
    if (value != "bf16" && value != "fp16") refuse(spec, fmt::format("type={} does not exist", value));
    target.wire = value == "bf16" ? DataType::bfloat16 : DataType::float16;
  } else {
    refuse(spec, fmt::format("unknown key '{}'", key));
  }
}

void set_keys(std::string_view spec, std::string_view settings, Compression& target) {
  std::vector<std::string_view> seen;
  for (const std::string_view setting : split(settings, ',')) {
    const auto equals = setting.find('=');
    if (equals == std::string_view::npos) refuse(spec, fmt::format("'{}' is not key=value", setting));
    const std::string_view key = setting.substr(0, equals);
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) refuse(spec, fmt::format("'{}' comes twice", key));
    seen.push_back(key);
    set_key(spec, key, setting.substr(equals + 1), target);
  }
}

Compression defaults_of(std::string_view spec, std::string_view name) {
  if (name == "none") return none();
  if (name == "cast") return cast();
  if (name == "minmax") return minmax();
  refuse(spec, fmt::format("unknown codec '{}'", name));
}

}  // namespace

Compression minmax(MinmaxOptions options) {
  const Compression made{.kind = Compression::Kind::minmax, .bits = options.bits, .bucket_size = options.bucket_size};
  if (const auto fault = minmax_fault(made.bits, made.bucket_size); !fault.empty()) refuse(made.to_string(), fault);
  return made;
}

Compression cast(DataType wire) {
  if (wire != DataType::bfloat16 && wire != DataType::float16) {
    refuse("cast", fmt::format("{} is no 16-bit floating type", to_string(wire)));
  }
  return {.kind = Compression::Kind::cast, .bits = 16, .bucket_size = 1, .wire = wire};
}

Compression Compression::parse(std::string_view spec) {
  const auto colon = spec.find(':');
  Compression result = defaults_of(spec, spec.substr(0, colon));
  if (colon != std::string_view::npos) set_keys(spec, spec.substr(colon + 1), result);
  if (result.kind != Kind::minmax) return result;
  if (const auto fault = minmax_fault(result.bits, result.bucket_size); !fault.empty()) refuse(spec, fault);
  return result;
}

std::string Compression::to_string() const {
  switch (kind) {
    case Kind::none: break;
    case Kind::cast: return wire == DataType::bfloat16 ? "cast:type=bf16" : "cast:type=fp16";
    case Kind::minmax: return fmt::format("minmax:bits={},bucket_size={}", bits, bucket_size);
  }
  return "none";
}

}  // namespace qccl
