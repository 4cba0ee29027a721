// The kernels of an image, one for each program of slice_body.h. The memory that jobs name is memory that the device reads
// and writes: its own, or pinned host memory.
#include "kernels/device/slice_body.h"
#include "kernels/device/warp.h"

namespace qccl::kernels::device {
namespace {

template <Entry kEntry>
__device__ void run_block(const JobList& list) {
  using Program = ProgramOf<kEntry>;
  using Memory = GroupMemory<Program>;
  alignas(16) __shared__ unsigned char memory[kGroups][sizeof(Memory)];
  const unsigned int group = threadIdx.x / kGroupLanes;
  Warp<typename Program::Lane> warp;
  run_jobs<Program>(list, {blockIdx.x * kGroups + group, gridDim.x * kGroups},
                    *reinterpret_cast<Memory*>(memory[group]), warp);
}

}  // namespace
}  // namespace qccl::kernels::device

#define QCCL_ENTRY(name)                                                           \
  extern "C" __global__ void __launch_bounds__(qccl::kernels::device::kThreads, 1) \
      qccl_##name(const __grid_constant__ qccl::kernels::device::JobList list) {   \
    qccl::kernels::device::run_block<qccl::kernels::device::Entry::name>(list);    \
  }

QCCL_ENTRY(own_type)
QCCL_ENTRY(raw)
QCCL_ENTRY(cast)
QCCL_ENTRY(minmax)
QCCL_ENTRY(block_int)
QCCL_ENTRY(sign)
QCCL_ENTRY(grid)
QCCL_ENTRY(grid_forms)
