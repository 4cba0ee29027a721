// The calls of a group with another library inside its hosts, one after the other: see Communicator::use_inside().
//
// One thread begins each call, and posts what goes between hosts. A second waits for that and ends the call, so that
// the next call begins meanwhile. A third aborts the other library once QCCL's group has failed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
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
class InsideSteps;
struct InsideJob;

// First in, first out, without memory of its own. Thread-safe.
class InsideQueue {
 public:
  ~InsideQueue();
  void push(std::shared_ptr<InsideJob> job);
  // Waits for one; null once the queue is closed and empty.
  std::shared_ptr<InsideJob> pop();
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<InsideJob> first_;  // guarded by mutex_, as what follows
  InsideJob* last_ = nullptr;
  bool is_closed_ = false;
};

// What a thread waits for while a group lives. Thread-safe.
class InsideAlarm {
 public:
  // The first of these two counts.
  void ring();  // the group has failed
  void end();   // it has closed
  // Waits for one of them; true if the group has failed.
  bool wait();

 private:
  enum class State : std::uint8_t { quiet, ringing, ended };

  void set(State state);

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::quiet;  // guarded by mutex_
};

// The group's state outlives it.
class InsideCalls final : public Detour {
 public:
  // Collective over the group. Throws Error; what the factory throws fails the group.
  InsideCalls(CommunicatorState& group, const InsideFactory& make_inside);
  ~InsideCalls() override;
  InsideCalls(const InsideCalls&) = delete;
  InsideCalls& operator=(const InsideCalls&) = delete;

  bool suits(const CollectiveCall& call) const override;
  // Blocks while very many are in flight. Throws what is wrong with the call, and Error(misuse) if another call has the
  // same error feedback.
  std::shared_ptr<WorkState> post(const CollectiveCall& call) override;
  void drain() override;
  void close() override;

 private:
  std::shared_ptr<InsideJob> make_job(const CollectiveCall& call);
  void claim_feedback(InsideJob& job);
  void start_threads();
  void stop_threads();
  void begin_jobs();
  void end_jobs();
  // Runs the step; what it throws fails the group.
  template <class Step>
  void attempt(const InsideJob& job, const Step& step) noexcept;
  template <class Step>
  void run_step(const InsideJob& job, const Step& step);
  void fail(ErrorInfo failure);
  void run_out_of_memory();
  bool has_ended() const { return group_end_->done(); }
  bool is_known_soon();
  void finish(InsideJob& job);
  static void settle_feedback(InsideJob& job, bool well);
  void abort_with_group();

  CommunicatorState& group_;
  const std::shared_ptr<comm::Context> context_;
  std::unique_ptr<InsideSteps> steps_;
  const std::shared_ptr<WorkState> group_end_;  // ends with the group's failure, or well when it closes
  const std::shared_ptr<InsideAlarm> alarm_ = std::make_shared<InsideAlarm>();
  InsideQueue beginning_;
  InsideQueue ending_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t last_number_ = 0;  // guarded by mutex_, as what follows
  std::size_t in_flight_ = 0;
  bool is_closed_ = false;

  std::thread beginner_;
  std::thread ender_;
  std::thread guard_;
};

}  // namespace qccl::internal
