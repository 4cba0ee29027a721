#include "bootstrap/protocol/keys.h"

#include <fmt/format.h>

#include <limits>

#include "base/text.h"
#include "bootstrap/launcher/launch_identity.h"

namespace qccl::bootstrap {
namespace {

constexpr std::string_view kPlainCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

bool is_variable(std::string_view part) { return part.size() == 1 && part[0] >= 'A' && part[0] <= 'Z'; }

std::int64_t most_of(std::string_view variable) {
  switch (variable[0]) {
    case 'G': return kMaxGenerations;
    case 'R': return kMaxWorld - 1;
    case 'N': return kMostListedDoors;
    default: return std::numeric_limits<int>::max();
  }
}

// The number that the part spells, if the variable may be that: without leading zeros. Else 0.
std::int64_t number_of(std::string_view variable, std::string_view part) {
  const auto number = parse_number<std::int64_t>(part).value_or(0);
  return number > 0 && number <= most_of(variable) && part[0] != '0' ? number : 0;
}

bool matches(std::string_view pattern, std::string_view name, KeyNumbers& numbers) {
  for (auto number = numbers.begin();;) {
    const auto end = pattern.find('/'), name_end = name.find('/');
    const auto expected = pattern.substr(0, end), part = name.substr(0, name_end);
    const bool varies = is_variable(expected);
    if (varies ? (*number++ = number_of(expected, part)) == 0 : part != expected) return false;
    if (end == std::string_view::npos || name_end == std::string_view::npos) return end == name_end;
    pattern.remove_prefix(end + 1);
    name.remove_prefix(name_end + 1);
  }
}

}  // namespace

std::string name_of(const KeyRow& row, KeyNumbers numbers) {
  std::string name;
  auto number = numbers.begin();
  for (const std::string_view part : split(row.pattern, '/')) {
    if (!name.empty()) name += '/';
    name += is_variable(part) ? std::to_string(*number++) : part;
  }
  return name;
}

std::optional<ParsedKey> parse_key(Place place, std::string_view name) {
  for (const KeyRow& row : kKeys) {
    ParsedKey parsed{&row, {}};
    if (row.place == place && matches(row.pattern, name, parsed.numbers)) return parsed;
  }
  return std::nullopt;
}

// Users choose job names: characters that could be taken for a separator are written as %XX.
std::string key_prefix(const std::string& job, std::uint32_t restart) {
  std::string escaped;
  for (const char c : job) {
    const bool is_plain = kPlainCharacters.find(c) != std::string_view::npos;
    escaped += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return fmt::format("qccl/{}/{}/", escaped, restart);
}

std::string door_name(const std::string& job) { return job + "/door"; }

}  // namespace qccl::bootstrap
