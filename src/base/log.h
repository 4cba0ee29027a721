// The log sink: where the library says what it can't return. Silent unless QCCL_LOG asks.
#pragma once

#include <string_view>

namespace qccl {

enum class LogLevel { error, warning, info, debug };

// Writes one line "qccl: LEVEL: message" to standard error if QCCL_LOG (error by default, or
// warning, info, debug) admits the level. Thread-safe, one write call a line.
void log(LogLevel level, std::string_view message);

}  // namespace qccl
