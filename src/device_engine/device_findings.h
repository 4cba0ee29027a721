#pragma once

#include "base/findings.h"
#include "base/options.h"

namespace qccl::engine {

// What diagnose() says of devices and kernels. `local_rank`: each rank looks closely at one device, because that takes
// some of its memory.
void describe_devices(int local_rank, const Options& options, Findings& found);

}  // namespace qccl::engine
