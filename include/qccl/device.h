// Device memory in calls: `CallOptions::stream` and `MessageOptions::stream` say that the buffers lie in a device's
// memory, and which stream their contents come from.
//
//   comm.all_reduce(gradient, gradient, count, qccl::DataType::float32, {.stream = qccl::DeviceStream{0, stream}});
//
// docs/gpu.md has the details.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace qccl {

// A stream of a device. The call begins after the work that the stream has when the call is made, and reads and writes
// its buffers outside of the stream: they are the call's until it has returned or its Work is done. Work that the
// program submits after that, to any stream, sees the result.
struct DeviceStream {
  int device = 0;          // the device's index, as the CUDA runtime counts them in this process
  void* handle = nullptr;  // a cudaStream_t (CUstream); null: the device's default stream
};

// How a stream comes to see the result of a call.
enum class StreamOrder : std::uint8_t {
  host,  // the host waits for the call, then submits what uses its result
  gate,  // the stream waits for the call (Work::block()), the host goes on
};

// The device whose context is current in this thread, as cudaSetDevice() leaves it; nothing without one, or without a
// driver.
std::optional<int> current_device();

// Which memory a buffer is.
enum class MemoryHome : std::uint8_t {
  host,     // the program's own: no stream in calls
  pinned,   // host memory that devices use: calls may name a stream
  device,   // calls name a stream of this device
  managed,  // moves between host and device; calls refuse it
};

// Where a buffer lies: the answer of place_of().
struct MemoryPlace {
  MemoryHome home = MemoryHome::host;
  int device = -1;  // of device memory
};

// Where memory lies, as CUDA's driver says; it is asked in the context of `device`, or of device 0 if there is no such
// device. Without a driver all memory is the host's.
MemoryPlace place_of(const void* memory, int device);

// Memory of a device, uninitialized, freed with the last copy. Throws Error: unsupported without a driver,
// invalid_argument if there is no such device, resource_exhausted.
std::shared_ptr<void> allocate_on_device(std::size_t bytes, int device);

}  // namespace qccl
