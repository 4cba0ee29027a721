// One call of this rank: the plan that all ranks share, what is this rank's own business, and what the user's handles
// point to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/pooled.h"
#include "base/rank.h"
#include "engine/call/executable_plan.h"
#include "engine/call/kept_input.h"
#include "qccl/error.h"
#include "qccl/log.h"
#include "qccl/types.h"

namespace qccl::internal {

// Why operations failed: one object for all that failed together, so that ending them takes no memory. Null: they did
// not fail.
using SharedFailure = std::shared_ptr<const ErrorInfo>;

// What a Work handle points to: done or not, and how it ended.
//
// Owner: shared by the user's handles and, while in flight, the engine. Threads: complete() is called once by the
// driver; the rest from any thread.
struct WorkState {
  WorkState() = default;
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;
  // A Work that was never posted leaves the count here.
  ~WorkState() { leave_count(); }

  // Pairs with the release store in complete(): a thread that sees true also sees failure() and the output.
  bool done() const { return progress_.load(std::memory_order_acquire) == Progress::done; }

  // Only after done(), like source() and times(); their setters only before complete().
  const SharedFailure& failure() const { return failure_; }
  // Without it the operation ends well.
  void set_failure(SharedFailure failure) { failure_ = std::move(failure); }
  // The group rank a message came from, -1 if there is none.
  int source() const { return source_; }
  void set_source(int rank) { source_ = rank; }
  // Set for an operation that is in the log.
  const std::optional<OperationTimes>& times() const { return times_; }
  void set_times(const OperationTimes& times) { times_ = times; }

  // The operation's number in its group, as errors have it; of several operations, the first's. 0 until the engine has
  // taken it, and where the group refused it.
  std::uint64_t number() const { return number_.load(std::memory_order_relaxed); }
  // Once, by the driver.
  void set_number(std::uint64_t number);

  // Marks the end and runs the callbacks, outside the lock. Takes no memory.
  void complete();

  // Several operations: ends when `parts` other Works, which join it, have ended, with the failure of the first that
  // failed. Before any of them is posted.
  void expect_parts(std::size_t parts) { parts_left_ = parts; }
  void join(std::shared_ptr<WorkState> whole) { whole_ = std::move(whole); }
  // Whether `other` is this Work or waits for it. Called by the driver, before this Work has ended.
  bool is_part_of(const WorkState& other) const;

  // A stream waits for the end and will not hear of a failure. Any thread, before notify() opens the stream's gate.
  void set_gated() { gated_.store(true, std::memory_order_relaxed); }
  bool is_gated() const { return gated_.load(std::memory_order_relaxed); }

  // Counts in `in_flight` until its end; before it is posted.
  void count_in(std::shared_ptr<std::atomic<std::size_t>> in_flight) {
    in_flight->fetch_add(1, std::memory_order_relaxed);
    in_flight_ = std::move(in_flight);
  }

  // A call that is recorded can't be waited for until it is posted.
  void set_recorded(bool is_recorded) { recorded_.store(is_recorded, std::memory_order_release); }
  bool is_recorded() const { return recorded_.load(std::memory_order_acquire); }

  // Runs `callback` at the end, or at once if that has come.
  void notify(std::function<void()> callback);

  // The comm::Context that drives the operation, for handles that wait; set before posting. Weak:
  // the last handle may be dropped by the driver itself, which must not destroy its own context.
  std::weak_ptr<void> context;

  // EndedWorks' link, until complete().
  std::shared_ptr<WorkState> next_ended;

 private:
  enum class Progress : std::uint8_t { running, has_callbacks, done };

  void complete_part(const SharedFailure& failure);
  void leave_count() {
    if (in_flight_ != nullptr) in_flight_->fetch_sub(1, std::memory_order_relaxed);
    in_flight_ = nullptr;
  }

  std::atomic<Progress> progress_{Progress::running};
  SharedFailure failure_;
  std::atomic<bool> gated_{false};        // relaxed: a call that fails meanwhile may not fill its output
  std::atomic<std::uint64_t> number_{0};  // relaxed: nothing else is read because of it
  int source_ = -1;
  std::optional<OperationTimes> times_;
  std::mutex mutex_;
  std::vector<std::function<void()>> callbacks_;         // guarded by mutex_
  std::atomic<bool> recorded_{false};                    // release and acquire: the thread that waits may be another
  std::shared_ptr<WorkState> whole_;                     // that this is a part of
  std::shared_ptr<std::atomic<std::size_t>> in_flight_;  // relaxed: a count; its waiters hear of ends otherwise
  std::size_t parts_left_ = 0;                           // guarded by mutex_, as what follows
  SharedFailure parts_failure_;                          // the first
};

// In memory that is used again: a program that repeats its calls does not allocate for them.
inline std::shared_ptr<WorkState> make_work() { return std::allocate_shared<WorkState>(PooledAllocator<WorkState>()); }

// Both sides of a FeedbackState while they are in a device's memory (engine/staged/device_feedback.h).
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

namespace qccl::engine {

// A buffer of the same size on every rank of a group, which the ranks of one host map.
struct MappedRegion {
  std::uint64_t id = 0;  // the same on all ranks; from 1
  std::size_t bytes = 0;
  bool on_board = false;                              // all ranks map all, and meet on the group's board
  std::vector<std::shared_ptr<std::byte>> of_member;  // by group rank; null on other hosts
};

// The copies of a call on device memory (engine/staged/staged_call.h). Dropping it waits for those under way.
class StagedCall;
struct StagedCallReturn {
  void operator()(StagedCall* call) const;
};
using StagedCallPtr = std::unique_ptr<StagedCall, StagedCallReturn>;

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
  StagedCallPtr staged{};                               // then `input` and `output` are its host memory
  KeptInput kept{};                                     // to be given back if the call fails
  bool keeps_input = false;                             // which its output overwrites
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

// The device that the operation's lanes run on, by an address that is its own; null: the host.
const void* device_of_lanes(const StagedCall& staged);
inline const void* device_of_lanes(const CallArguments& arguments) {
  return arguments.staged == nullptr ? nullptr : device_of_lanes(*arguments.staged);
}
// See StagedCall::describe_place(); "" of a call on host memory.
std::string describe_place(const StagedCall& staged);
inline std::string describe_place(const CallArguments& arguments) {
  return arguments.staged == nullptr ? "" : describe_place(*arguments.staged);
}
inline bool has_device_lanes(const CallArguments& arguments) { return device_of_lanes(arguments) != nullptr; }

// MappedOperation runs it.
inline bool reduces_on_board(const CallArguments& arguments) {
  return arguments.region != nullptr && arguments.region->on_board;
}

}  // namespace qccl::engine
