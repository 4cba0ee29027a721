// For tests of the kernels: where their jobs run is the test program's choice. Programs of src/kernels run the bodies
// on the host, those of tests/ptx what CUDA's compiler made of them.
#pragma once

#include <cstdint>

#include "kernels/device/slice_job.h"

namespace qccl::kernels::device {

// All jobs have this entry(). At least as many groups as given share them.
void launch_jobs(Entry entry, const SliceJob* jobs, std::uint32_t count, std::uint32_t groups);

}  // namespace qccl::kernels::device
