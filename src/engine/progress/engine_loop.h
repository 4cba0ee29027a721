// What the holder of the driver token does with the engine: rounds of progress, with polling and sleep between them.
//
// It sleeps in Transport::sleep(), which sees sockets, doorbells and deadlines, never on a futex.
#pragma once

#include <functional>

#include "engine/progress/action_inbox.h"
#include "engine/progress/driver_token.h"

namespace qccl::engine {

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
