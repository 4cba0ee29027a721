// One call of this rank: the plan that all ranks share, and what is this rank's own business.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/pooled.h"
#include "base/rank.h"
#include "engine/call/executable_plan.h"
#include "engine/call/work_state.h"
#include "qccl/types.h"

namespace qccl::internal {

// What an ErrorFeedback handle points to: see include/qccl/error_feedback.h.
//
// Owner: shared by the user's handles and the operation in flight that uses it. Threads: a call claims it on the thread
// that drives the engine, which alone touches it until the call has ended; otherwise it is the user's.
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

namespace qccl::engine {

// A buffer of the same size on every rank of a group, which the ranks of one host map.
struct MappedRegion {
  std::uint64_t id = 0;  // the same on all ranks; from 1
  std::size_t bytes = 0;
  bool on_board = false;                              // all ranks map all, and meet on the group's board
  std::vector<std::shared_ptr<std::byte>> of_member;  // by group rank; null on other hosts
};

// A send or a recv.
struct Message {
  bool incoming = false;
  GroupRank peer;  // none: a recv takes a message of any rank
  int tag = 0;
  std::uint64_t count = 0;  // elements
  DataType type = DataType::uint8;
};

// The buffers stay the caller's, and must stay valid until `work` is done.
struct CallArguments {
  std::uint64_t group = 0;
  std::shared_ptr<const ExecutablePlan> plan{};  // of a collective; null for a message
  std::optional<Message> message{};              // instead of a collective
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  double premul_factor = 1;  // premul_sum: times the input; ranks may differ
  // Distinguishes this call's random numbers from another's (random_key()). Empty: the engine numbers the group's
  // compressed collectives.
  std::optional<std::uint64_t> random_counter{};
  std::shared_ptr<internal::FeedbackState> feedback{};  // only with a codec
  std::shared_ptr<const MappedRegion> region{};         // that the call reduces in place
  Nanoseconds timeout{0};
  std::shared_ptr<internal::WorkState> work;
  TimePoint posted{};      // for the log; unset: the time at which the engine gets it
  std::string log_name{};  // in the log; "": name()
  bool is_logged = true;   // false: the library's own call
  bool awaited = false;    // a hint: the thread that posts it will drive it

  // "all_reduce", "send"
  std::string_view name() const {
    if (!message) return to_string(plan->call().collective);
    return message->incoming ? "recv" : "send";
  }
};

using ArgumentsList = PooledVector<CallArguments>;

// MappedOperation runs it.
inline bool reduces_on_board(const CallArguments& arguments) {
  return arguments.region != nullptr && arguments.region->on_board;
}

}  // namespace qccl::engine
