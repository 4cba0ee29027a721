// `qccl doctor`: reports what the library finds here, what it would do, what is wrong and how to fix it.
#pragma once

#include <string>
#include <vector>

namespace qccl::tools {

// The exit code: 0, 1 if something is broken, 2 for wrong flags.
int doctor_main(const std::vector<std::string>& arguments);

}  // namespace qccl::tools
