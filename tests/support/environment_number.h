// Numbers that whoever runs a test gives it: how many programs, with which seed.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace qccl::testing {

inline std::uint64_t environment_number(const char* variable, std::uint64_t otherwise) {
  return std::stoull(environment(variable).value_or(std::to_string(otherwise)));
}

}  // namespace qccl::testing
