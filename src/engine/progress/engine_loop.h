// What the holder of the driver token does with the engine: rounds of progress, with polling and sleep between them.
//
// It sleeps in Transport::sleep(), which sees sockets, doorbells and deadlines, never on a futex.
#pragma once

#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/progress/driver_token.h"

namespace qccl::engine {

// What another thread asks the holder to do: post a call or several, which needs no memory, or anything else.
struct Action {
  std::optional<CallArguments> call{};
  ArgumentsList calls{};
  std::function<void(Engine&)> other{};

  void run(Engine& engine) {
    if (call) engine.post(std::move(*call));
    for (CallArguments& each : calls) engine.post(std::move(each));
    if (other) other(engine);
  }
};

// Thread-safe.
class ActionInbox {
 public:
  // Calls seldom find the token taken: without this a program would allocate for its first such call, at any time.
  ActionInbox() {
    waiting_.reserve(kRoom);
    running_.reserve(kRoom);
  }

  // False, and the action as it was, if there is no memory for it.
  bool add(Action&& action) {
    const std::lock_guard lock(mutex_);
    try {
      waiting_.push_back(std::move(action));
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  // By the holder: runs all actions in order.
  void run(Engine& engine) {
    {
      const std::lock_guard lock(mutex_);
      running_.swap(waiting_);
    }
    for (Action& action : running_) action.run(engine);
    running_.clear();
  }

 private:
  static constexpr std::size_t kRoom = 16;

  std::mutex mutex_;
  std::vector<Action> waiting_;  // guarded by mutex_
  std::vector<Action> running_;  // the holder's; both lists keep their memory
};

struct PollingOptions {
  Nanoseconds spin{};                 // how long a waiting thread polls after the last movement before it sleeps
  bool yield_while_spinning = false;  // local ranks outnumber cores: lets others run between two rounds
};

// Every function is the holder's. The others outlive it.
class EngineLoop {
 public:
  EngineLoop(Engine& engine, Transport& transport, const Clock& clock, PollingOptions options, DriverToken& token,
             ActionInbox& inbox)
      : engine_(engine), transport_(transport), clock_(clock), options_(options), token_(token), inbox_(inbox) {}

  // Runs the actions in the inbox, if there are any.
  void run_inbox();
  void run(Action&& action);
  // Counts a call that was done on the spot. Such calls look at nothing else, so some get a round of progress: this
  // rank must send heartbeats and hear its peers.
  void note_exchange();
  // Drives until `work` is done.
  void finish(const internal::WorkState& work);
  // Drives until `done` holds (true) or the deadline has come.
  bool drive_until(const std::function<bool()>& done, TimePoint deadline);
  // Drives until the token must give way.
  void drive_in_background();
  // Completes the works of ended operations and notifies the threads that wait for them.
  void complete_ended();

 private:
  bool complete_works();
  bool run_on_board(const internal::WorkState& work);
  void sleep_until_event(TimePoint deadline, bool in_background);

  Engine& engine_;
  Transport& transport_;
  const Clock& clock_;
  const PollingOptions options_;
  DriverToken& token_;
  ActionInbox& inbox_;
  int exchanges_ = 0;  // since the last round of progress
};

}  // namespace qccl::engine
