// Functions of the fake driver that programs call and the library does not: those of tests that run on a GPU as well
// (tests/gpu_driver).
#pragma once

#include "device/driver.h"

struct CUgraph_st;

namespace qccl::device::fake {

Code stream_synchronize(CUstream_st* stream);
Code launch_host_function(CUstream_st* stream, void (*function)(void*), void* data);
// Waits until the 32 bits at `address` are at least `value`: a device reads them, so memory of one or pinned.
Code stream_wait_value(CUstream_st* stream, DevicePointer address, std::uint32_t value, unsigned int flags);
Code memcpy_async(DevicePointer target, DevicePointer source, std::size_t bytes, CUstream_st* stream);
Code mem_alloc_managed(DevicePointer* memory, std::size_t bytes, unsigned int flags);
Code stream_begin_capture(CUstream_st* stream, CaptureMode mode);
Code stream_end_capture(CUstream_st* stream, CUgraph_st** graph);

}  // namespace qccl::device::fake
