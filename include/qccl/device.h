// Device memory in calls: `CallOptions::stream` and `MessageOptions::stream` say that the buffers lie in a device's
// memory, and which stream their contents come from.
//
//   comm.all_reduce(gradient, gradient, count, qccl::DataType::float32, {.stream = qccl::DeviceStream{0, stream}});
//
// docs/gpu.md has the details.
#pragma once

namespace qccl {

// A stream of a device. The call begins after the work that the stream has when the call is made, and reads and writes
// its buffers outside of the stream: they are the call's until it has returned or its Work is done. Work that the
// program submits after that, to any stream, sees the result.
struct DeviceStream {
  int device = 0;          // the device's index, as the CUDA runtime counts them in this process
  void* handle = nullptr;  // a cudaStream_t (CUstream); null: the device's default stream
};

}  // namespace qccl
