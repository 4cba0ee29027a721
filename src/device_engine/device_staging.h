#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/gates.h"
#include "device/registered_memory.h"
#include "device_engine/devices.h"
#include "device_engine/gate_watch.h"
#include "device_engine/staged/staged_call.h"

namespace qccl::engine {

// Devices over CUDA's driver: which kind of memory a call's buffers are, the device's part in it, and gates.
class DeviceStaging final : public Devices, public std::enable_shared_from_this<DeviceStaging> {
 public:
  explicit DeviceStaging(const Options& options)
      : kernels_(options.device_kernels),
        pinned_limit_(options.pinned_limit),
        may_gate_(options.stream_order != StreamOrder::host),
        shadows_(options.pinned_limit) {}

  void set_frame_memory(std::vector<FrameRooms::Memory> memory) override { frame_memory_ = std::move(memory); }
  Result<MemoryKind> kind_of(const DeviceStream& stream, std::span<const UsedBuffer> buffers) override;
  Result<DevicePartPtr> begin(const DeviceStream& stream, const DeviceBuffers& buffers, MemoryKind kind,
                              const ComputedCall* call) override;
  Result<bool> has_gates(int device) override;
  Result<std::optional<StreamGate>> close_gate(const DeviceStream& stream) override;
  bool open_gate(const StreamGate& gate) override;
  std::shared_ptr<void> watch_gates(std::function<std::uint64_t()> rounds) override;

 private:
  Result<StagingDevice*> open(int device);
  // Null where streams don't wait at gates.
  Result<device::Gates*> gates(int device);
  void watch(device::Gates& gates);
  Result<LaneMemory> lane_memory(StagingDevice& device, const DeviceBuffers& buffers, const ComputedCall& call);
  // Moves the state to the device. False if it stays where it is: the device has no kernels or no memory, or another
  // call has the state. A failure is that of the device where it was.
  Result<bool> move(internal::FeedbackState& feedback, StagingDevice& device);
  std::unique_ptr<device::Kernels> load_kernels(const device::Device& device);
  Result<device::ReachedMemory> register_frames(const device::Device& device);
  device::ReachedMemory reach_frames(const device::Device& device);

  const std::string kernels_;
  const std::uint64_t pinned_limit_;
  const bool may_gate_;
  std::vector<FrameRooms::Memory> frame_memory_;  // until it was registered
  std::mutex mutex_;                              // guards what follows
  std::weak_ptr<GateWatch> watch_;
  std::unique_ptr<device::Runtime> runtime_;
  std::string image_;  // the file's content
  device::RegisteredMemory frames_;
  ShadowPool shadows_;
  std::vector<std::unique_ptr<StagingDevice>> devices_;  // by index; null until used
};

}  // namespace qccl::engine
