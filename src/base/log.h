// The log sink, for messages that the library cannot return. Silent unless QCCL_LOG asks for them.
#pragma once

#include <string_view>

namespace qccl {

enum class LogLevel { error, warning, info, debug };

// Writes one line "qccl: LEVEL: message" to standard error if QCCL_LOG (error by default, or warning, info, debug)
// admits the level. Thread-safe, one write call a line.
void log(LogLevel level, std::string_view message);

// Writes a line that the program has requested to standard error, whatever QCCL_LOG says. Thread-safe, as above.
void write_line(std::string_view text);

}  // namespace qccl
