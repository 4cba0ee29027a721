// Where the slices of one lane are for a device: in the caller's buffers, and in pinned host memory on their way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device_engine/lanes/device_layout.h"
#include "device_engine/staged/device_feedback.h"
#include "device_engine/staged/staged_call.h"
#include "engine/call/call_arguments.h"
#include "engine/compute/math_context.h"
#include "kernels/device/slice_job.h"

namespace qccl::engine {

// What the lanes of a call share. It outlives them.
struct DeviceCall {
  const ExecutablePlan* plan;
  DeviceLayout layout;
  int world;
  int divisor;  // of avg
  GroupRank rank;
  kernels::device::PayloadFormat format;  // of the plan's codec

  // Of the call that runs.
  StagedCall* staged = nullptr;
  const CallArguments* arguments = nullptr;
  PhaseKeys keys{};
  DeviceFeedback* feedback = nullptr;  // null: without
  Status kept{};                       // whether it could keep what it was told to
};

class DeviceSlices {
 public:
  DeviceSlices(DeviceCall& call, std::size_t lane);

  std::size_t elements(std::uint64_t slice) const;
  // Pinned memory, `at` from where the slice's begins.
  std::byte* place(std::uint64_t slice, std::size_t at) const;
  // Adds this rank's input to the parts of a job of the slice, with the residual, which is kept before: once a slice.
  kernels::device::Source take_input(std::uint64_t slice, kernels::device::SliceJob& job) const;
  void* output(std::uint64_t slice) const;

  // A job of the slice's elements; raw: whatever the plan's codec is.
  kernels::device::SliceJob job(std::uint64_t slice, bool raw) const;
  // Draws the numbers that the host would.
  RandomStream random(std::uint64_t slice, std::uint64_t key) const;

 private:
  DeviceCall& call_;
  const plan::Lane& lane_;
  const DeviceLayout::Lane& places_;
};

}  // namespace qccl::engine
