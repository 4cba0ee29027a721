// Which cores of this host a rank is bound to.
#pragma once

#include <vector>

namespace qccl::tools {

// Those that this process may use, threads of one core side by side.
std::vector<int> usable_cores();

// A rank's equal share of them; where there are fewer cores than ranks, one core, which several ranks share.
std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world);

}  // namespace qccl::tools
