#include "tools/flag_values.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>

#include "plan/plan.h"

namespace qccl::tools {

Names<Collective> collective_names() {
  Names<Collective> names;
  for (const Collective collective : plan::kEveryCollective) names.emplace_back(to_string(collective), collective);
  return names;
}

Names<Algorithm> algorithm_names() {
  Names<Algorithm> names;
  for (const Algorithm algorithm : kEveryAlgorithm) names.emplace_back(to_string(algorithm), algorithm);
  return names;
}

std::optional<std::uint64_t> parse_size(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const std::size_t power = std::string("KMG").find(static_cast<char>(std::toupper(unit.empty() ? 0 : unit[0])));
  if (error != std::errc() || number < 0 || number > 1e18 || unit.size() > 1) return std::nullopt;
  if (unit.size() == 1 && power == std::string::npos) return std::nullopt;
  return static_cast<std::uint64_t>(unit.empty() ? number : std::ldexp(number, 10 * (static_cast<int>(power) + 1)));
}

CLI::Validator size_value() {
  const auto convert = [](std::string& text) -> std::string {
    const auto size = parse_size(text);
    if (!size) return text + " is not a size such as 4096, 64M or 1.5G";
    text = std::to_string(*size);
    return {};
  };
  return CLI::Validator(convert, "SIZE");
}

CLI::Validator rate_value() {
  const std::map<std::string, double> units = {{"kbit", 125}, {"mbit", 125e3}, {"gbit", 125e6}};
  return CLI::AsNumberWithUnit(units,
                               static_cast<CLI::AsNumberWithUnit::Options>(CLI::AsNumberWithUnit::CASE_INSENSITIVE |
                                                                           CLI::AsNumberWithUnit::UNIT_REQUIRED),
                               "RATE");
}

CLI::Validator time_value() {
  const std::map<std::string, double> units = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  return CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::UNIT_REQUIRED, "TIME");
}

std::string size_text(std::uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, units[unit]);
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

}  // namespace qccl::tools
