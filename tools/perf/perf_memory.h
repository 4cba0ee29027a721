// Checks that the buffers of a measurement fit this machine before they exhaust its memory.
#pragma once

#include <string>

#include "tools/perf/perf_options.h"

namespace qccl::tools {

// Empty if the ranks of this host have room, else what is missing. Called by the process that
// starts the ranks, or by the host's first rank under another launcher.
std::string memory_problem(const PerfOptions& options, bool launches);

}  // namespace qccl::tools
