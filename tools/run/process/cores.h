// Chooses the cores of this host that a rank is bound to.
#pragma once

#include <vector>

namespace qccl::tools {

// The logical CPUs that this process may use; the hardware threads of one core are adjacent.
std::vector<int> usable_cores();

// A rank's equal share of `cores`. With fewer cores than ranks, one core that several ranks share.
std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world);

}  // namespace qccl::tools
