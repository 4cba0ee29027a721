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
#include <span>
#include <thread>

#include "engine/progress/engine_loop.h"

namespace qccl::engine {

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
  // Drives until everything committed has left this process, or the deadline has come.
  void drive_until_flushed(TimePoint deadline);
  // Drives until `work` is done or the deadline has come; true if done.
  bool wait(internal::WorkState& work, TimePoint deadline);
  // The same for anything that the end of an operation brings about.
  bool wait_until(const std::function<bool()>& done, TimePoint deadline);
  // Runs `action` in the thread that holds the token, and returns when it has run; throws what it throws. It must not
  // block. Takes no memory itself.
  void with_engine(const std::function<void(Engine&)>& action);

 private:
  // Returns the token, however the holder leaves. See DriverToken::release() for `coming_back`.
  struct Holder {
    ~Holder() { driver.token_.release(!driver.engine_.idle(), coming_back); }
    ProgressDriver& driver;
    const bool coming_back = false;
  };

  void stamp(std::span<CallArguments> calls) const;
  // Runs the action with the token, or leaves it to the holder.
  void run_or_announce(Action&& action, bool coming_back = false);

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
