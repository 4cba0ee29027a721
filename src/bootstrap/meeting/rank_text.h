// Text for ranks and times in messages of the start-up.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

namespace qccl::bootstrap {

// "rank 0 of 4", the beginning of messages.
std::string rank_text(int rank, int world);
// "rank 2", "ranks 2, 3", "ranks 1-511"; runs of three or more are folded.
std::string ranks_text(const std::vector<int>& ascending_ranks);
// "process 123 on node0".
std::string own_process_text();
// "5.0 s".
std::string seconds_text(Nanoseconds duration);

}  // namespace qccl::bootstrap
