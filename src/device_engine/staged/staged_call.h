// A call on device memory, run by the host: the input is copied to a shadow in host memory, the ordinary operation runs
// on the shadow, and its output is copied back.
//
//   awaits_caller   until the event has happened that the call recorded on the caller's stream when it was made
//   copies_in       until the event behind the copy of the input has
//   runs            the host operation
//   copies_out      until the event behind the copy of the output has
//   fills       only of a failed call behind a gate: until the event behind the filling of its output has
//   ended
//
// Nothing is submitted to the device that waits for a peer or for the caller's kernels, so copies end within
// milliseconds whatever becomes of the call, and the device's memory is the call's until the host has seen that. The
// host only ever asks whether an event has happened; it does not block on a device.
//
// Calls on pinned memory that name a stream have no copies, only the wait for the stream. Nor have calls whose lanes
// run on the device (device_compute.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "device/gates.h"
#include "device/going_streams.h"
#include "device/registered_memory.h"
#include "device_engine/staged/device_jobs.h"
#include "device_engine/staged/shadow_pool.h"
#include "device_engine/staged/staged_memory.h"
#include "engine/call/device_part.h"
#include "engine/compute/compute.h"

namespace qccl::engine {

class StagingDevice;

class StagedCall final : public DevicePart {
 public:
  StagedCall(StagingDevice& home, std::unique_ptr<device::Event> event);
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  // Records the caller's stream as it is now. Without kernels or memory for the lanes the call runs on a shadow. Throws
  // std::bad_alloc.
  Status begin(CUstream_st* caller, const DeviceBuffers& buffers, StagedMemory::Use use, const LaneMemory& lanes = {});
  const StagedMemory& memory() const { return memory_; }
  // The device's work for the lanes.
  DeviceJobs& jobs() { return jobs_; }

  StagingDevice& home() const { return home_; }

  const std::byte* input() const override { return memory_.input(); }
  std::byte* output() const override { return memory_.output(); }
  bool runs() const override { return state_ == State::runs; }
  bool has_ended() const override { return state_ == State::ended; }
  Result<bool> advance() override;
  Status begin_return() override;
  bool abandon(bool fills) override;
  void drain(bool fills) override;
  bool has_returned() const override { return has_returned_; }
  Nanoseconds patience() const override { return patience_; }
  bool is_computing() const override { return !jobs_.is_idle(); }
  const char* awaited() const override;
  bool saw_gate_open() override;
  const void* place() const override { return has_lanes() ? &home_ : nullptr; }
  std::string describe_place() const override { return memory_.describe_place(); }
  std::unique_ptr<Compute> make_compute(const ComputeContext& context) const override;
  void give_back() override;

 private:
  enum class State { awaits_caller, copies_in, runs, copies_out, fills, ended };

  bool has_lanes() const { return memory_.use() == StagedMemory::Use::lanes; }
  Status copy_in();
  bool fill_output();
  void end_return();

  StagingDevice& home_;
  const std::unique_ptr<device::Event> event_;
  State state_ = State::ended;
  StagedMemory memory_;
  DeviceJobs jobs_;
  Nanoseconds patience_{};
  std::uint64_t gates_opened_ = 0;
  bool has_returned_ = false;

  friend class StagingDevice;
};

using StagedCallPtr = std::unique_ptr<StagedCall, DevicePartReturn>;

// Host memory for a device: of the calls' own, and that of frames, where the device reads and writes it.
struct DeviceReach {
  ShadowPool& shadows;
  device::ReachedMemory frames;
};

// What computes on a device.
struct DeviceKernels {
  std::unique_ptr<device::Kernels> loaded;  // null: the host computes
  ComputeFactory make_compute;
};

// The streams that copy and compute, and the calls to reuse. Thread-safe. The device and the memory outlive it, as it
// does its calls.
class StagingDevice {
 public:
  static Result<std::unique_ptr<StagingDevice>> open(const device::Device& device, DeviceReach reach,
                                                     DeviceKernels kernels);
  StagingDevice(const StagingDevice&) = delete;
  StagingDevice& operator=(const StagingDevice&) = delete;

  const device::Device& device() const { return device_; }
  ShadowPool& shadows() const { return reach_.shadows; }
  // Whether the device writes to frames of the transport that it holds.
  bool reaches_frames() const { return !reach_.frames.empty(); }
  // Where the device has these bytes of a frame; null if it does not reach them.
  std::byte* reach(ConstBytes frame) const { return reach_.frames.find(frame); }
  device::Stream& inward() const { return *inward_; }
  device::Stream& outward() const { return *outward_; }
  bool has_kernels() const { return kernels_.loaded != nullptr; }
  std::unique_ptr<Compute> make_compute(const ComputeContext& context) const { return kernels_.make_compute(context); }
  // Opened when they are first asked for; null if they don't work, which a warning says then.
  device::Gates* gates();
  // How many of its gates were opened so far.
  std::uint64_t gates_opened() const;
  DeviceLauncher launcher() const { return {kernels_.loaded.get(), &device_, computing_.get()}; }

  // A call that has ended, to begin. Throws std::bad_alloc.
  Result<StagedCallPtr> take();
  // Drains it. Takes no memory.
  void give_back(StagedCall* call);

 private:
  StagingDevice(const device::Device& device, DeviceReach reach, DeviceKernels kernels)
      : device_(device), reach_(std::move(reach)), kernels_(std::move(kernels)) {}

  Status open_gates();

  const device::Device& device_;
  const DeviceReach reach_;
  const DeviceKernels kernels_;
  std::unique_ptr<device::Stream> inward_;  // from the device; two, so that copies both ways overlap
  std::unique_ptr<device::Stream> outward_;
  std::unique_ptr<device::Stream> computing_;
  std::array<std::optional<device::GoingStream>, 3> going_;  // these
  std::once_flag tried_gates_;
  std::unique_ptr<device::Gates> gates_;           // kept where they don't work: freeing waits for the program
  std::atomic<device::Gates*> tried_{nullptr};     // the same, once they work
  std::mutex mutex_;                               // guards what follows
  std::vector<std::unique_ptr<StagedCall>> free_;  // with room for all
  std::size_t made_ = 0;
};

}  // namespace qccl::engine
