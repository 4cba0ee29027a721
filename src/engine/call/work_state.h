#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/pooled.h"
#include "qccl/error.h"
#include "qccl/log.h"

namespace qccl::internal {

// Why operations failed: one object for all that failed together, so that ending them takes no memory. Null: they did
// not fail.
using SharedFailure = std::shared_ptr<const ErrorInfo>;

// What a Work handle points to: done or not, and how it ended.
//
// Owner: shared by the user's handles and, while in flight, the engine. Threads: complete() is called once by the
// driver; the rest from any thread.
class WorkState {
 public:
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

}  // namespace qccl::internal
