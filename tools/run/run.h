// `qccl run`: starts a program as the ranks of one job.
#pragma once

#include <string>
#include <vector>

namespace qccl::tools {

// `arguments` are those after "run". Returns the process's exit code.
int run_main(const std::vector<std::string>& arguments);

}  // namespace qccl::tools
