// Runs the engine in whichever thread holds the driver token.
//
// A progress thread lives from start() to stop(). A thread that waits for an operation takes the token from it, so that
// a blocking call pays for no hand-over between threads, and returns the token when its operation is done. While user
// threads drive by themselves the progress thread stays parked. It takes the token back when operations are in flight
// and nobody drives, or when no call was made for some time, so that deaths, poison and heartbeats are handled in a
// process that computes for long.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <thread>
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

// What the holder of the driver token does with the engine: rounds of progress, with polling and sleep between them. It
// sleeps in Transport::sleep(), which sees sockets, doorbells and deadlines, never on a futex.
//
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
  // Checks every connection and makes a round of progress.
  void look();
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

// Thread-safe. The engine, transport and clock outlive it. A call that the system refuses memory throws std::bad_alloc
// and has done nothing, unless it says otherwise.
class ProgressDriver {
 public:
  ProgressDriver(Engine& engine, Transport& transport, const Clock& clock, PollingOptions options);
  ~ProgressDriver();

  void start();
  // Ends the progress thread. Operations in flight stay as they are.
  void stop();

  // Posts and begins the operation, which then proceeds without being waited for.
  void post(CallArguments&& arguments);
  // Posts a call that has no work yet, and drives until it has ended, in this thread if the token is free. Returns its
  // work, which is done; null if it ended well without one.
  std::shared_ptr<internal::WorkState> run(CallArguments&& arguments);
  // The same for several calls, which are all posted before any of them moves; run() ends with `work`.
  void post(ArgumentsList calls);
  void run(ArgumentsList calls, internal::WorkState& work);
  // Says goodbye to the peers and drives until everything committed has left this process, for Engine::leave_patience()
  // at most, which the transport's close() takes over.
  void leave();
  // Drives until `work` is done or the deadline has come; true if done.
  bool wait(internal::WorkState& work, TimePoint deadline);
  // The same for anything that the end of an operation brings about.
  bool wait_until(const std::function<bool()>& done, TimePoint deadline);
  // Runs `action` in the thread that holds the token, and returns when it has run; throws what it throws. It must not
  // block. Takes no memory itself.
  void with_engine(const std::function<void(Engine&)>& action);
  // Checks every connection, whereas a round of progress checks only some, so that all peers that have ended are known.
  void look();

 private:
  // Returns the token, however the holder leaves.
  struct Holder {
    ~Holder() { driver.token_.release(!driver.engine_.idle(), use); }
    ProgressDriver& driver;
    const TokenUse use = TokenUse::drive;
  };

  void stamp(std::span<CallArguments> calls) const;
  // Runs the action with the token, or leaves it to the holder.
  void run_or_announce(Action&& action, TokenUse use = TokenUse::drive);

  Engine& engine_;
  Transport& transport_;
  const Clock& clock_;
  DriverToken token_;
  ActionInbox inbox_;
  EngineLoop loop_;                                  // the holder's, and so is what follows
  std::shared_ptr<internal::WorkState> spare_work_;  // for the next run()
  std::thread thread_;
};

}  // namespace qccl::engine
