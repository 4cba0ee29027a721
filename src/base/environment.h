// The only place that reads environment variables.
#pragma once

#include <optional>
#include <string>

namespace qccl {

// The variable's value; empty if it is unset or empty.
std::optional<std::string> environment(const char* name);

}  // namespace qccl
