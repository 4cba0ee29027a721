// The only code that executes collectives: a non-blocking state machine over (operations in
// flight, transport, clock).
//
// Messages (send, recv) are operations too, but matched by their mailbox instead of a common number: see mailbox.h.
//
// The first failure of a group ends all its operations, and every later call returns it. Frames never touch the
// caller's memory after an operation has ended.
//
// If the system refuses memory, the group that needed it fails with resource_exhausted. All groups fail for good if the
// group is not known or frames may have been lost. post() and progress() never throw std::bad_alloc. Functions that
// open, close or describe a group do, and have then done nothing.
//
// The state (engine/state/) is shared by the classes that act on it (engine/act/), each of which is given what it uses.
// The engine puts them together and orders a round of progress.
//
// Threads: one at a time, the holder of the driver token, which completes works outside of progress (take_ended()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/act/call_starter.h"
#include "engine/act/failure_handler.h"
#include "engine/act/frame_dispatcher.h"
#include "engine/act/group_lifecycle.h"
#include "engine/act/group_shrinker.h"
#include "engine/act/mismatch_detector.h"
#include "engine/act/peer_failures.h"
#include "engine/act/status_exchange.h"
#include "engine/call/call_ledger.h"
#include "engine/compute/math_context.h"
#include "engine/frames/frame_sender.h"
#include "engine/state/control_queue.h"
#include "engine/state/ended_works.h"
#include "engine/state/engine_options.h"
#include "engine/state/group_table.h"
#include "engine/state/operation_recorder.h"
#include "engine/state/operation_table.h"
#include "engine/state/peer_monitor.h"
#include "engine/state/round_clock.h"
#include "transport/transport.h"

namespace qccl::engine {

class Engine {
 public:
  Engine(Transport& transport, const Clock& clock, EngineOptions options);
  ~Engine();

  GroupLifecycle& groups() { return groups_; }
  GroupShrinker& shrinker() { return shrinker_; }
  StatusExchange& status() { return status_; }

  // The slices and the window (0: ranks are near) of calls from now on, alike on all ranks; none is in flight.
  void use_sizes(std::size_t slice_bytes, std::uint64_t window_bytes) {
    options_.slice_bytes = slice_bytes;
    frame_sender_.eager().use_window(window_bytes);
  }
  // How often progress() was called. Any thread may ask.
  std::uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }
  // Some operations may be logged, so posts say when they were made. Any thread may ask.
  bool is_logging() const { return recorder_.is_on(); }

  // Takes the group's next sequence number. A refused call ends with the failure.
  void post(CallArguments&& arguments) { starter_.post(std::move(arguments)); }
  // The same for a call whose caller waits for it. A small call that has the engine to itself is done on the spot if
  // the other ranks are there: returns true, and `work` is not used. Otherwise it is posted with `work`.
  bool exchange_or_post(CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work) {
    return starter_.exchange_or_post(std::move(arguments), work);
  }

  // Ends a Work that no operation of the engine has.
  void end_work(std::shared_ptr<internal::WorkState> work, internal::SharedFailure failure) {
    ended_.push(std::move(work), std::move(failure));
  }

  // Moves what can be moved; true if anything did.
  bool progress();
  // The only operation in flight goes through the board.
  bool is_alone_on_board() const { return operations_.size() == 1 && (*operations_.begin())->is_on_board(); }
  // The part of progress() that takes the steps of operations, for one alone on the board.
  bool advance_operations();
  // The next time at which progress() has something to do without any event.
  TimePoint next_timer() const;
  bool idle() const { return operations_.empty(); }
  // The work of the next operation that has ended, to be completed once no lock is held; or null.
  std::shared_ptr<internal::WorkState> take_ended() { return ended_.pop(); }

  // Makes progress() tell every peer that this rank leaves in good order.
  void say_goodbye() { control_.say_goodbye(); }
  // How long a rank that leaves waits for peers that take nothing of what it has sent. For the peer timeout if one on
  // another host may need it: the network between them may be out for some seconds.
  Nanoseconds leave_patience() const;
  // No control frame waits to be sent.
  bool has_sent_control() const { return control_.empty(); }

  // ---- for errors and status, in words
  // The group's operations that have not ended, the oldest first, and what each waits for.
  std::vector<std::string> describe_in_flight(std::uint64_t group) const;
  // The error of a wait for `work` that was given up after `waited`: its first operation that has not ended, and the
  // peers that it waits for. Nothing if all have ended.
  std::optional<ErrorInfo> given_up(const internal::WorkState& work, Milliseconds waited) const;
  // Adds what it knows: groups, calls in flight, counters, lines, warnings.
  void report(RankStatus& status) const;

  // Memory that ranks of this host share; null if there is none.
  SharedHeap* shared_heap() { return transport_.host_memory().heap; }

  // ---- the state, to be read
  const EngineOptions& options() const { return options_; }
  const RoundClock& clock() const { return clock_; }
  const Transport& transport() const { return transport_; }
  const FrameSender& frame_sender() const { return frame_sender_; }
  const GroupTable& group_table() const { return group_table_; }
  const OperationTable& operations() const { return operations_; }
  const PeerMonitor& peers() const { return peers_; }
  const CallLedger& ledger() const { return ledger_; }

 private:
  bool move();
  bool advance_device(Operation& operation);
  bool begin_return(Operation& operation);
  void end(std::unique_ptr<Operation>& operation);
  // Its steps, and its end; true if anything moved.
  bool advance_operation(std::unique_ptr<Operation>& operation);
  void end_turn(const Operation& ended);
  CallStatus status_of(const Operation& operation) const;
  void report_lines(RankStatus& status) const;

  Transport& transport_;
  EngineOptions options_;
  RoundClock clock_;
  const TimePoint begun_ = clock_.now();
  std::atomic<std::uint64_t> rounds_{0};  // of progress; relaxed: others only see that it grows
  FrameSender frame_sender_;
  ScratchPool pool_;
  GroupTable group_table_;
  OperationTable operations_;
  PeerMonitor peers_;
  ControlQueue control_;
  OperationRecorder recorder_;
  CallLedger ledger_;
  EndedWorks ended_;

  FailureHandler failures_;
  MismatchDetector mismatches_;
  PeerFailures peer_failures_;
  GroupShrinker shrinker_;
  StatusExchange status_;
  FrameDispatcher dispatcher_;
  CallStarter starter_;
  GroupLifecycle groups_;
};

}  // namespace qccl::engine
