// Modules and launches of the fake driver. A launch runs the bodies of the library's kernels (kernels/device) in the
// stream's thread, on the bytes behind the addresses that its jobs name.
#pragma once

#include "device/driver.h"

namespace qccl::device::fake {

// The functions of driver.h.
Code module_load_data(CUmod_st** module, const void* image);
Code module_unload(CUmod_st* module);
Code module_get_function(CUfunc_st** function, CUmod_st* module, const char* name);
Code launch_kernel(CUfunc_st* function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                   unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                   CUstream_st* stream, void** parameters, void** extra);

}  // namespace qccl::device::fake
