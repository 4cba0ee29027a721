// Whether the buffers of a measurement fit this machine, asked before it is driven out of memory.
#pragma once

#include <string>

#include "tools/perf/perf_options.h"

namespace qccl::tools {

// Empty if the ranks of this host have room, else what is missing. Asked by the process that
// starts the ranks, or by the host's first rank if another launcher did.
std::string memory_problem(const PerfOptions& options, bool launches);

}  // namespace qccl::tools
