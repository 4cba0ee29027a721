// Runs jobs on the host, by the bodies of the device's kernels, for tests and for the fake driver.
#pragma once

#include <cstdint>

#include "kernels/device/slice_job.h"

namespace qccl::kernels::device {

// All jobs have this entry(). As many groups as given share them; every second one runs its lanes backwards.
void run_on_host(Entry entry, const SliceJob* jobs, std::uint32_t count, std::uint32_t groups);

}  // namespace qccl::kernels::device
