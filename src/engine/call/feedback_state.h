#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace qccl::internal {

// Both sides of a FeedbackState while they are in a device's memory (DeviceFeedback).
class DeviceSides {
 public:
  virtual ~DeviceSides() = default;
  // The device, by an address that is its own.
  virtual const void* place() const = 0;
  // Copies both to the host, and waits for that.
  virtual Status fetch(std::span<float> residual, std::span<float> other) = 0;
};

// What an ErrorFeedback handle points to: see include/qccl/error_feedback.h.
//
// Owner: shared by the user's handles and the operation in flight that uses it. Threads: a call claims it on the thread
// that drives the engine, which alone touches it until the call has ended; otherwise it is the user's.
//
// A call is a transaction: it saves each element of the residual before it changes it, and takes them back if it fails.
// The other side of the last call is kept until the next one begins.
//
// Both sides are in host memory, or in that of the device that computed the last call.
class FeedbackState {
 public:
  FeedbackState(std::size_t count, std::uint64_t counter) : residual_(count), other_(count), counter_(counter) {}

  std::size_t size() const { return residual_.size(); }
  // Only while the state is in host memory, as save(), take_back() and swap().
  float* residual() { return residual_.data(); }
  std::span<const float> other() const { return other_; }
  std::uint64_t counter() const { return counter_; }
  // Pairs with the release in end(): a thread that sees false sees everything that the call wrote.
  bool is_busy() const { return busy_.load(std::memory_order_acquire); }

  // Null: it is in host memory.
  DeviceSides* on_device() const { return on_device_.get(); }
  // It is there from now on; they hold what it has in host memory.
  void move_to(std::unique_ptr<DeviceSides> sides) { on_device_ = std::move(sides); }
  // Back to host memory. After a failure, the device's, it is where it was.
  Status bring_home();

  // Claims the state for one call, which needs it in the memory of that device or, null, of the host, and returns the
  // call's random counter; nothing if another call has it or it is elsewhere.
  std::optional<std::uint64_t> claim(const void* place) {
    if (busy_.exchange(true, std::memory_order_acquire)) return std::nullopt;
    if (place != (on_device_ == nullptr ? nullptr : on_device_->place())) {
      busy_.store(false, std::memory_order_release);
      return std::nullopt;
    }
    other_counter_.reset();
    saved_ = 0;
    return counter_;
  }
  // Why no call can claim it, or "".
  std::string unusable_reason() const { return is_busy() ? kInUse : ""; }
  static constexpr const char* kInUse =
      "another call that has not ended uses this error feedback: wait for its Work first";
  // The call is about to change these elements, for the first time.
  void save(std::uint64_t first, std::size_t count);
  // The same, saved by the device.
  void note_saved(std::size_t count) { saved_ += count; }
  bool is_saved() const { return saved_ == size(); }
  // The call has failed: takes back elements that were saved.
  void take_back(std::uint64_t first, std::size_t count);
  // The call has ended; of a failed one, all that was saved has been taken back.
  void end(bool well);

  // The counter of the other side of the last call: before it, or after it where it failed. Nothing if the call had
  // not reached all elements.
  std::optional<std::uint64_t> other_counter() const { return other_counter_; }
  // Goes to that side.
  void swap();

  void reset() {
    on_device_.reset();
    reset(0, size());
    counter_ = 0;
    other_counter_.reset();
  }
  void reset(std::size_t first, std::size_t count);

 private:
  std::vector<float> residual_;
  std::vector<float> other_;
  std::unique_ptr<DeviceSides> on_device_;
  std::uint64_t counter_;  // calls that ended well
  std::optional<std::uint64_t> other_counter_;
  std::size_t saved_ = 0;  // elements, by the call in flight
  std::atomic<bool> busy_{false};
};

}  // namespace qccl::internal
