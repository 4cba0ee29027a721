#include "tools/plan/plan_words.h"

#include <fmt/format.h>

namespace qccl::tools {

std::vector<Collective> all_collectives() {
  return {Collective::all_reduce,     Collective::reduce,     Collective::broadcast,
          Collective::reduce_scatter, Collective::all_gather, Collective::gather,
          Collective::scatter,        Collective::all_to_all, Collective::barrier};
}

std::map<std::string, Collective> collective_names() {
  std::map<std::string, Collective> names;
  for (const Collective collective : all_collectives()) names.emplace(to_string(collective), collective);
  return names;
}

std::map<std::string, Algorithm> algorithm_names() {
  std::map<std::string, Algorithm> names;
  for (const Algorithm algorithm : kEveryAlgorithm) names.emplace(to_string(algorithm), algorithm);
  return names;
}

CLI::Validator size_word() {
  const std::map<std::string, std::uint64_t> units = {{"k", 1ull << 10}, {"m", 1ull << 20}, {"g", 1ull << 30}};
  return CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_INSENSITIVE, "SIZE");
}

CLI::Validator rate_word() {
  const std::map<std::string, double> units = {{"kbit", 125}, {"mbit", 125e3}, {"gbit", 125e6}};
  return CLI::AsNumberWithUnit(units,
                               static_cast<CLI::AsNumberWithUnit::Options>(CLI::AsNumberWithUnit::CASE_INSENSITIVE |
                                                                           CLI::AsNumberWithUnit::UNIT_REQUIRED),
                               "RATE");
}

CLI::Validator time_word() {
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
