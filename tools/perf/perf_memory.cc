#include "tools/perf/perf_memory.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>

namespace qccl::tools {
namespace {

std::optional<std::uint64_t> available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
  }
  return std::nullopt;
}

int number_in(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

}  // namespace

std::string memory_problem(const PerfOptions& options, bool launches) {
  if (!launches && number_in("LOCAL_RANK", 0) != 0) return {};
  const int ranks = launches ? options.ranks : number_in("LOCAL_WORLD_SIZE", 1);
  const auto available = available_bytes();
  const double needed = 2.0 * static_cast<double>(options.max_bytes) * ranks;
  if (!available || needed <= static_cast<double>(*available)) return {};
  constexpr double kGiB = 1 << 30;
  return fmt::format("{} ranks with input and output of {} bytes need {:.1f} GiB, {:.1f} GiB are free: lower -e", ranks,
                     options.max_bytes, needed / kGiB, static_cast<double>(*available) / kGiB);
}

}  // namespace qccl::tools
