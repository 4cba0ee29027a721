// `qccl ps`: shows what the ranks on this host are doing, and which peers they wait for.
#pragma once

#include <string>
#include <vector>

namespace qccl::tools {

// The exit code: 0, 1 if there are no ranks, 2 for wrong flags.
int ps_main(const std::vector<std::string>& arguments);

}  // namespace qccl::tools
