// QCCL_CHECK, and the log sink for messages that the library cannot return. It is silent unless QCCL_LOG asks
// for them, but for one line at the end of a job.
#pragma once

#include <string_view>

namespace qccl {

enum class LogLevel { error, warning, info, debug };

// Writes one line "qccl: LEVEL: message" to standard error if QCCL_LOG (error by default, or warning, info, debug)
// admits the level. Thread-safe, one write call a line.
void log(LogLevel level, std::string_view message);

// Whether the library may say unasked what a job has done: unless QCCL_LOG is error or warning.
bool announces();

// Writes a line that the program has requested to standard error, whatever QCCL_LOG says. Thread-safe, as above.
void write_line(std::string_view text);

// Logs the failed condition and its location, then aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace qccl

// For bugs of our own, never for bad input or a bad peer.
#define QCCL_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::qccl::check_failed(#condition, __FILE__, __LINE__))
