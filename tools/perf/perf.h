// `qccl perf`: times a collective and checks its results.
#pragma once

#include <string>
#include <vector>

namespace qccl::tools {

// `arguments` are those after "perf", the collective first. Returns the process's exit code.
int perf_main(const std::vector<std::string>& arguments);

}  // namespace qccl::tools
