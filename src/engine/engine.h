// The only code that executes collectives: a non-blocking state machine over (operations in
// flight, transport, clock).
//
// Messages (send, recv) are operations too, but matched by their mailbox instead of a common number: see mailbox.h.
//
// Every arriving frame is compared with the operation of its sequence number, or stored until that is posted. The first
// failure of a group ends all its operations, and every later call returns it. Frames never touch the caller's memory
// after an operation has ended.
//
// If the system refuses memory, the group that needed it fails with resource_exhausted. All groups fail for good if the
// group is not known or frames may have been lost. post() and progress() never throw std::bad_alloc. Functions that
// open, close or describe a group do, and have then done nothing.
//
// The parts own the state (engine_parts.h); the engine puts them together and orders a round of progress.
//
// Threads: one at a time, the holder of the driver token, which completes works outside of progress (take_ended()).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/call_starter.h"
#include "engine/engine_parts.h"
#include "engine/failure/failure_handler.h"
#include "engine/failure/mismatch_detector.h"
#include "engine/failure/peer_failures.h"
#include "engine/frame_dispatcher.h"
#include "engine/group/group_lifecycle.h"
#include "qccl/status.h"

namespace qccl::engine {

class Engine {
 public:
  Engine(Transport& transport, const Clock& clock, EngineOptions options);
  ~Engine();

  GroupLifecycle& groups() { return groups_; }

  // The slices of calls from now on, alike on all ranks; none is in flight.
  void use_slices(std::size_t bytes) { parts_.options.slice_bytes = bytes; }
  // Some operations may be logged, so posts say when they were made. Any thread may ask.
  bool is_logging() const { return parts_.recorder.is_on(); }

  // Takes the group's next sequence number. A refused call ends with the failure.
  void post(CallArguments&& arguments) { starter_.post(std::move(arguments)); }
  // The same for a call whose caller waits for it. A small call that has the engine to itself is done on the spot if
  // the other ranks are there: returns true, and `work` is not used. Otherwise it is posted with `work`.
  bool exchange_or_post(CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work) {
    return starter_.exchange_or_post(std::move(arguments), work);
  }

  // Moves what can be moved; true if anything did.
  bool progress();
  // The only operation in flight goes through the board.
  bool is_alone_on_board() const {
    return parts_.operations.size() == 1 && (*parts_.operations.begin())->is_on_board();
  }
  // The part of progress() that takes the steps of operations, for one alone on the board.
  bool advance_operations();
  // The next time at which progress() has something to do without any event.
  TimePoint next_timer() const;
  bool idle() const { return parts_.operations.empty(); }
  // The work of the next operation that has ended, to be completed once no lock is held; or null.
  std::shared_ptr<internal::WorkState> take_ended() { return parts_.ended.pop(); }

  // Makes progress() tell every peer that this rank leaves in good order.
  void say_goodbye() { parts_.control.say_goodbye(); }
  // No control frame waits to be sent.
  bool has_sent_control() const { return parts_.control.empty(); }

  // ---- for errors and status, in words
  // The group's operations that have not ended, the oldest first, and what each waits for.
  std::vector<std::string> describe_in_flight(std::uint64_t group) const;
  // The error of a wait for `work` that was given up after `waited`: its first operation that has not ended, and the
  // peers that it waits for. Nothing if all have ended.
  std::optional<ErrorInfo> given_up(const internal::WorkState& work, Milliseconds waited) const;
  // Adds groups and calls in flight.
  void report(RankStatus& status) const;

  const EngineParts& parts() const { return parts_; }

 private:
  bool move();
  // Its steps, and its end; true if anything moved.
  bool advance_operation(std::unique_ptr<Operation>& operation);
  void end_turn(const Operation& ended);
  void check_timers();

  EngineParts parts_;
  FailureHandler failures_;
  MismatchDetector mismatches_;
  PeerFailures peer_failures_;
  FrameDispatcher dispatcher_;
  CallStarter starter_;
  GroupLifecycle groups_;
};

}  // namespace qccl::engine
