// Failures of the start-up, and text for ranks and times in their messages.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace qccl::bootstrap {

// The same failure with this rank named, also at the beginning of its message: "rank 0 of 4: ".
Failure named(int rank, int world, ErrorInfo info);
Failure failure_about(ErrorKind kind, int peer, std::string message);
// "rank 2", "ranks 2, 3", "ranks 1-511"; runs of three or more are folded.
std::string ranks_text(const std::vector<int>& ascending_ranks);
// "process 123 on node0".
std::string own_process_text();
// "5.0 s".
std::string seconds_text(Nanoseconds duration);

}  // namespace qccl::bootstrap
