// The kernels as CUDA's compiler made them, for the architecture that the test program is built for.
#pragma once

#include "kernels/device/slice_job.h"
#include "support/ptx/launch.h"

namespace qccl::kernels::device {

// Loaded once.
ptx::Module& compiled_kernels();

ptx::Counts launch_compiled(Entry entry, const SliceJob* jobs, std::uint32_t count, const ptx::Grid& grid);

}  // namespace qccl::kernels::device
