// The start parameters of each rank of a job: torchrun's variables, a share of the cores, its input and output.
#pragma once

#include <vector>

#include "tools/run/launcher.h"

namespace qccl::tools {

// The logical CPUs that this process may use; the hardware threads of one core are adjacent.
std::vector<int> usable_cores();
// A rank's equal share of `cores`. With fewer cores than ranks, one core that several ranks share.
std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world);

// Unsets the variables with which an outer launcher started this process, so that no rank takes them for its own.
void forget_outer_launcher();

// One specification for each rank. Rank 0's listener takes `master_port`.
std::vector<RankSpec> rank_specs(const LaunchOptions& options, int master_port);

}  // namespace qccl::tools
