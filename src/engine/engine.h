// The only code that executes collectives: a non-blocking state machine over (operations in
// flight, transport, clock).
//
// Messages (send, recv) are operations too, but matched by their mailbox instead of a common
// number: see mailbox.h.
//
// Every frame that arrives is held against the operation of its sequence number: past, present,
// or stored for later. The first failure of a group ends all its operations and is what every
// later call returns. Frames never touch the caller's memory after an operation ended.
//
// Memory that the system refuses fails the group that it was for, with resource_exhausted; where that is not known, or
// frames may have been lost, it fails all groups for good. post() and progress() never throw it; what opens, closes or
// describes a group does, and has then done nothing.
//
// The parts own the state (engine_parts.h); what is here puts them together and orders a round of progress.
//
// Threads: one at a time (whoever holds the driver's token). Completions run outside of progress
// through take_ended().
#pragma once

#include <cstdint>
#include <memory>

#include "engine/call_starter.h"
#include "engine/engine_parts.h"
#include "engine/failure/failure_handler.h"
#include "engine/failure/mismatch_detector.h"
#include "engine/failure/peer_failures.h"
#include "engine/frame_dispatcher.h"
#include "engine/group/group_lifecycle.h"

namespace qccl::engine {

class Engine {
 public:
  Engine(Transport& transport, const Clock& clock, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  GroupLifecycle& groups() { return groups_; }

  // The slices of calls from now on, alike on all ranks; none is in flight.
  void use_slices(std::size_t bytes) { parts_.options.slice_bytes = bytes; }
  // Where ranks of this host share memory; else null. Lives as long as the transport.
  SharedHeap* heap() { return parts_.transport.heap(); }
  // Some operations may be logged: posts should say when they were made. Any thread may ask.
  bool is_logging() const { return parts_.recorder.is_on(); }

  // Takes the next sequence number of the group. A refused post completes with the failure.
  void post(CallArguments&& arguments) { starter_.post(std::move(arguments)); }
  // The same for a call whose caller waits for it. A small one that has the engine to itself is done on the spot if the
  // other ranks are there: true, it has ended well, and `work` is not used. Else it is posted with `work`.
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

  // Every peer is to be told, by progress(), that this rank leaves in good order.
  void say_goodbye() { parts_.control.say_goodbye(); }
  // No control frame waits to be sent.
  bool has_no_notes() const { return parts_.control.empty(); }
  // Fails all groups without telling anybody: the process is closing.
  void shut_down(const ErrorInfo& reason) { failures_.shut_down(reason); }

  FrameSender& frame_sender() { return parts_.frame_sender; }
  const EngineOptions& options() const { return parts_.options; }
  const EngineParts& parts() const { return parts_; }
  const FailureHandler& failures() const { return failures_; }

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
