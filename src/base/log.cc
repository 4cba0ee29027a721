#include "base/log.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/options.h"

namespace qccl {
namespace {

LogLevel admitted_level() {
  static const LogLevel level = [] {
    const auto text = environment("QCCL_LOG").value_or("error");
    if (text == "debug") return LogLevel::debug;
    if (text == "info") return LogLevel::info;
    if (text == "warning") return LogLevel::warning;
    return LogLevel::error;
  }();
  return level;
}

}  // namespace

void log(LogLevel level, std::string_view message) {
  static constexpr std::string_view kNames[] = {"error", "warning", "info", "debug"};
  if (level > admitted_level()) return;
  std::string line = "qccl: ";
  write_line(line.append(kNames[static_cast<int>(level)]).append(": ").append(message));
}

bool announces() { return !environment("QCCL_LOG") || admitted_level() >= LogLevel::info; }

void write_line(std::string_view text) {
  const std::string line = std::string(text) + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

void check_failed(const char* condition, const char* file, int line) {
  log(LogLevel::error, std::string("broken invariant: ") + condition + " at " + file + ":" + std::to_string(line));
  std::abort();
}

}  // namespace qccl
