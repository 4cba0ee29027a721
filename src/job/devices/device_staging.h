// Calls on device memory: which kind of memory their buffers are, and their copies.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "device/device.h"
#include "device/gates.h"
#include "device/registered_memory.h"
#include "engine/staged/staged_call.h"
#include "qccl/device.h"
#include "transport/transport.h"

namespace qccl::comm {

// The part of a caller's buffer that a call uses. Names the buffer in errors.
struct UsedBuffer {
  const char* name;
  const std::byte* begin;
  std::size_t bytes;
};

// A context's devices, which are opened when a call first names them. Thread-safe.
class DeviceStaging : public std::enable_shared_from_this<DeviceStaging> {
 public:
  explicit DeviceStaging(const Options& options)
      : kernels_(options.device_kernels),
        pinned_limit_(options.pinned_limit),
        may_gate_(options.stream_order != StreamOrder::host),
        shadows_(options.pinned_limit) {}

  // Where the transport has its frames, before the first call. A device with kernels writes and reads them there, if
  // the pinned limit and the driver let it.
  void set_frame_memory(std::vector<FrameRooms::Memory> memory) { frame_memory_ = std::move(memory); }

  // Device memory for a call that uses none. Unsupported without a driver, InvalidArgument for managed memory, for
  // another device's than the stream's, and for buffers of different kinds.
  Result<engine::MemoryKind> kind_of(const DeviceStream& stream, std::span<const UsedBuffer> buffers);
  // The device's part of a call that is about to be posted: see StagedCall::begin(). Throws std::bad_alloc.
  Result<engine::StagedCallPtr> begin(const DeviceStream& stream, const engine::StagedBuffers& buffers,
                                      engine::MemoryKind kind, const engine::LaneMemory& lanes = {});

  // Those of the device; null where streams don't wait at gates: because QCCL_STREAM_ORDER says so, or because the
  // device has none.
  Result<device::Gates*> gates(int device);

  // Moves the state to the stream's device, for a call with lanes there. False if it stays where it is: the device has
  // no kernels or no memory, or another call has the state. A failure is that of the device where it was.
  Result<bool> move(internal::FeedbackState& feedback, const DeviceStream& stream);

 private:
  Result<engine::StagingDevice*> open(int device);
  std::unique_ptr<device::Kernels> load_kernels(const device::Device& device);
  Result<device::ReachedMemory> register_frames(const device::Device& device);
  device::ReachedMemory reach_frames(const device::Device& device);

  const std::string kernels_;
  const std::uint64_t pinned_limit_;
  const bool may_gate_;
  std::vector<FrameRooms::Memory> frame_memory_;  // until it was registered
  std::mutex mutex_;                              // guards what follows
  std::unique_ptr<device::Runtime> runtime_;
  std::string image_;  // the file's content
  device::RegisteredMemory frames_;
  engine::ShadowPool shadows_;
  std::vector<std::unique_ptr<engine::StagingDevice>> devices_;  // by index; null until used
};

}  // namespace qccl::comm
