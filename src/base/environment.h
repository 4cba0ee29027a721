// The only place that reads environment variables.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace qccl {

// The variable's value; empty if it is unset or empty.
inline std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

}  // namespace qccl
