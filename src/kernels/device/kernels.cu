// The kernels of an image, one for each program of slice_body.h. `jobs` and whatever they name is memory that the device
// reads and writes: its own, or pinned host memory.
#include "kernels/device/slice_body.h"
#include "kernels/device/warp.h"

namespace qccl::kernels::device {
namespace {

template <Entry kEntry>
__device__ void run_block(const SliceJob* jobs, unsigned int count) {
  using Program = ProgramOf<kEntry>;
  using Memory = GroupMemory<Program>;
  alignas(16) __shared__ unsigned char memory[kGroups][sizeof(Memory)];
  const unsigned int group = threadIdx.x / kGroupLanes;
  Warp<typename Program::Lane> warp;
  run_jobs<Program>(jobs, count, {blockIdx.x * kGroups + group, gridDim.x * kGroups},
                    *reinterpret_cast<Memory*>(memory[group]), warp);
}

}  // namespace
}  // namespace qccl::kernels::device

#define QCCL_ENTRY(name)                                                                   \
  extern "C" __global__ void __launch_bounds__(qccl::kernels::device::kThreads)            \
      qccl_##name(const qccl::kernels::device::SliceJob* jobs, unsigned int count) {       \
    qccl::kernels::device::run_block<qccl::kernels::device::Entry::name>(jobs, count);     \
  }

QCCL_ENTRY(own_type)
QCCL_ENTRY(raw)
QCCL_ENTRY(cast)
QCCL_ENTRY(minmax)
QCCL_ENTRY(block_int)
QCCL_ENTRY(sign)
