// The calls of a group with another library inside its hosts, one after the other: see Communicator::use_inside().
//
// One thread begins each call, and posts what goes between hosts. A second waits for that and ends the call, so that
// the next call begins meanwhile. A third ends what the other library does once QCCL's group has failed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "engine/call/work_state.h"
#include "group/detour.h"
#include "qccl/error.h"
#include "qccl/inside.h"

namespace qccl::comm {
class Context;
}

namespace qccl::internal {

class CommunicatorState;
class FeedbackState;
class InsideSteps;
struct InsideJob;

// First in, first out. Thread-safe.
class InsideQueue {
 public:
  void push(std::shared_ptr<InsideJob> job);
  // Waits for one; null once the queue is closed and empty.
  std::shared_ptr<InsideJob> pop();
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<InsideJob>> jobs_;  // guarded by mutex_, as what follows
  bool is_closed_ = false;
};

// What threads wait for while a group lives. Thread-safe.
class InsideAlarm {
 public:
  // The first of these two counts.
  void ring();  // the group has failed
  void end();   // it is about to close
  // Waits for one of them; true if the group has failed.
  bool wait();

 private:
  enum class State : std::uint8_t { quiet, ringing, ended };

  void set(State state);

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::quiet;  // guarded by mutex_
};

// Thread-safe. Owned by the group's state, which outlives it.
class InsideCalls final : public Detour {
 public:
  // Collective over the group. Throws Error; what the factory throws fails the group.
  InsideCalls(CommunicatorState& group, const InsideFactory& make_inside);
  ~InsideCalls() override;
  InsideCalls(const InsideCalls&) = delete;
  InsideCalls& operator=(const InsideCalls&) = delete;

  bool suits(const CollectiveCall& call) const override;
  // Blocks while very many are in flight. Throws Error(misuse) if another call has the same error
  // feedback, and what is wrong with the call.
  std::shared_ptr<WorkState> post(const CollectiveCall& call) override;

 private:
  std::shared_ptr<InsideJob> make_job(const CollectiveCall& call);
  void start_threads();
  void begin_jobs();
  void end_jobs();
  // Runs the step; what it throws fails the group.
  template <class Step>
  void attempt(const InsideJob& job, const Step& step);
  void fail(ErrorInfo failure);
  bool has_failed() const { return failed_->done(); }
  bool is_known_soon();
  void finish(InsideJob& job);
  void end_with_group();

  CommunicatorState& group_;
  const std::shared_ptr<comm::Context> context_;
  std::unique_ptr<InsideSteps> steps_;
  const std::shared_ptr<WorkState> failed_;  // ends with the group's failure
  const std::shared_ptr<InsideAlarm> alarm_ = std::make_shared<InsideAlarm>();
  InsideQueue beginning_;
  InsideQueue ending_;

  std::mutex mutex_;
  std::condition_variable room_;
  std::uint64_t numbers_ = 0;  // guarded by mutex_, as what follows
  std::size_t in_flight_ = 0;
  std::set<const FeedbackState*> in_use_;  // of calls in flight

  std::thread beginner_;
  std::thread ender_;
  std::thread guard_;
};

}  // namespace qccl::internal
