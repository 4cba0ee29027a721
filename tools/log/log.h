// `qccl log` and `qccl trace`: summarize, draw and merge the logs of ranks.
#pragma once

#include <string>
#include <vector>

namespace qccl::tools {

// Run the command with the arguments after "log" or "trace"; return the exit code.
int log_main(const std::vector<std::string>& arguments);
int trace_main(const std::vector<std::string>& arguments);

inline constexpr int kLogFailed = 1;
inline constexpr int kLogUsage = 2;

}  // namespace qccl::tools
