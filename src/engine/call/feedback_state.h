// What an ErrorFeedback handle points to: see include/qccl/error_feedback.h.
//
// Owner: shared by the user's handles and the operation in flight that uses it. Threads: a call claims it on the thread
// that drives the engine, which alone touches it until the call has ended; otherwise it is the user's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qccl::internal {

class FeedbackState {
 public:
  FeedbackState(std::size_t count, std::uint64_t counter) : residual_(count), counter_(counter) {}

  std::size_t size() const { return residual_.size(); }
  float* residual() { return residual_.data(); }
  std::uint64_t counter() const { return counter_; }
  // Pairs with the release in end(): a thread that sees false sees everything that the call wrote.
  bool is_busy() const { return busy_.load(std::memory_order_acquire); }
  bool is_tainted() const { return tainted_; }

  // Claims the state for one call and returns the call's random counter; nothing if the state is unusable.
  std::optional<std::uint64_t> claim() {
    if (busy_.exchange(true, std::memory_order_acquire)) return std::nullopt;
    if (!tainted_) return counter_++;
    busy_.store(false, std::memory_order_release);
    return std::nullopt;
  }
  // Why no call can claim it, or "".
  std::string unusable_reason() const {
    if (is_busy()) return "another call that has not ended uses this error feedback: wait for its Work first";
    if (tainted_)
      return "an earlier call with this error feedback failed after some of it was sent: call reset() first";
    return {};
  }
  // The call has ended; a failed one leaves unknown residuals.
  void end(bool well) {
    tainted_ = !well;
    busy_.store(false, std::memory_order_release);
  }
  void reset() {
    residual_.assign(residual_.size(), 0.0f);
    counter_ = 0;
    tainted_ = false;
  }

 private:
  std::vector<float> residual_;
  std::uint64_t counter_;
  bool tainted_ = false;
  std::atomic<bool> busy_{false};
};

}  // namespace qccl::internal
