// Error feedback in a device's memory: the residual of each element, and the other side of the last call
// (internal::FeedbackState).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device_engine/staged/staged_call.h"
#include "engine/call/call_arguments.h"

namespace qccl::engine {

// Its copies and the device's jobs follow each other on one stream. Threads: as FeedbackState.
class DeviceFeedback final : public internal::DeviceSides {
 public:
  // What the state has in host memory. `owner` keeps the device alive. ResourceExhausted: it has no memory.
  static Result<std::unique_ptr<DeviceFeedback>> make(std::shared_ptr<const void> owner, StagingDevice& home,
                                                      internal::FeedbackState& state);

  const void* place() const override { return &home_; }
  Status fetch(std::span<float> residual, std::span<float> other) override;

  // A call begins.
  void begin() { kept_.clear(); }
  float* residual() const { return reinterpret_cast<float*>(residual_->data()); }
  // Jobs that are added from now on may change these elements.
  Status keep(std::uint64_t first, std::size_t count);
  // The call has failed: all kept elements become what they were.
  void take_back();
  // The two sides change places.
  void swap() { std::swap(residual_, other_); }

 private:
  DeviceFeedback(std::shared_ptr<const void> owner, StagingDevice& home) : owner_(std::move(owner)), home_(home) {}
  device::Stream& stream() const { return *home_.launcher().stream; }

  const std::shared_ptr<const void> owner_;  // first: the rest is the device's
  StagingDevice& home_;
  std::unique_ptr<device::DeviceMemory> residual_;
  std::unique_ptr<device::DeviceMemory> other_;
  std::vector<std::pair<std::uint64_t, std::size_t>> kept_;  // first element and count
};

}  // namespace qccl::engine
