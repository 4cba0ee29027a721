// Calls on device memory: which kind of memory their buffers are, and their copies.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/device.h"
#include "engine/staged/staged_call.h"
#include "qccl/device.h"

namespace qccl::comm {

// The part of a caller's buffer that a call uses. Names the buffer in errors.
struct UsedBuffer {
  const char* name;
  const std::byte* begin;
  std::size_t bytes;
};

// A context's devices, which are opened when a call first names them. Thread-safe.
class DeviceStaging {
 public:
  explicit DeviceStaging(std::uint64_t pinned_limit) : shadows_(pinned_limit) {}

  // Device memory for a call that uses none. Unsupported without a driver, InvalidArgument for managed memory, for
  // another device's than the stream's, and for buffers of different kinds.
  Result<engine::MemoryKind> kind_of(const DeviceStream& stream, std::span<const UsedBuffer> buffers);
  // The copies of a call that is about to be posted. Throws std::bad_alloc.
  Result<engine::StagedCallPtr> begin(const DeviceStream& stream, const engine::StagedCall::Buffers& buffers,
                                      engine::MemoryKind kind);

 private:
  Result<engine::StagingDevice*> open(int device);

  std::mutex mutex_;  // guards the runtime and the list
  std::unique_ptr<device::Runtime> runtime_;
  engine::ShadowPool shadows_;
  std::vector<std::unique_ptr<engine::StagingDevice>> devices_;  // by index; null until used
};

}  // namespace qccl::comm
