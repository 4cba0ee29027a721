// PTX text to a program.
#pragma once

#include <string>

#include "support/ptx/program.h"

namespace qccl::ptx {

// Throws Fault for what this library does not know, with the line.
Program assemble(const std::string& text);

}  // namespace qccl::ptx
