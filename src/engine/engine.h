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
// The parts own the state (engine_parts.h); the engine puts them together and orders a round of progress.
//
// Threads: one at a time, the holder of the driver token, which completes works outside of progress (take_ended()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/failure/failure_handler.h"
#include "engine/membership/group_shrinker.h"
#include "qccl/status.h"

namespace qccl::engine {

// Delivers arriving frames to the operations, messages and groups they are for. A frame is compared with the operation
// of its sequence number, or stored until that is posted.
class FrameDispatcher : private PayloadPlacement {
 public:
  FrameDispatcher(EngineParts& parts, FailureHandler& failures, PeerFailures& peer_failures,
                  MismatchDetector& mismatches, GroupShrinker& shrinker);
  ~FrameDispatcher() override;

  // True if any arrived.
  bool receive();
  // Takes over the frame: handles, keeps or discards it.
  void on_group_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  // Handles the frames that came before this rank posted that operation.
  void replay_stored(Group& group, std::uint64_t sequence);

 private:
  void on_frame(const ReceivedFrame& frame);
  std::byte* find_destination(WorldRank peer, ConstBytes header) override;
  void on_member_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void on_operation_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void on_message_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void deliver(Operation& operation, GroupRank member, const wire::FrameHeader& header, const ReceivedFrame& frame);
  // Stores the frame in `where`, or gives its sender up if `kept` frames are too many already.
  void keep(std::vector<StoredFrame>& where, std::size_t kept, const wire::FrameHeader& header,
            const ReceivedFrame& frame);
  void keep_orphan(const wire::FrameHeader& header, const ReceivedFrame& frame);

  EngineParts& parts_;
  FailureHandler& failures_;
  PeerFailures& peer_failures_;
  MismatchDetector& mismatches_;
  GroupShrinker& shrinker_;
  std::vector<StoredFrame> due_;          // of replay_stored()
  std::optional<ReceivedFrame> retried_;  // comes next, because there was no memory to keep it
};

// Numbers calls and makes them operations in flight, or runs small ones on the spot.
class CallStarter {
 public:
  CallStarter(EngineParts& parts, FailureHandler& failures, PeerFailures& peer_failures, FrameDispatcher& dispatcher)
      : parts_(parts), failures_(failures), peer_failures_(peer_failures), dispatcher_(dispatcher) {}

  // See Engine.
  void post(CallArguments&& arguments);
  bool exchange_or_post(CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work);

 private:
  // post(), as far as memory lasts; sets `claimed` to the error feedback that the call has claimed.
  void begin(Group* target, CallArguments&& arguments, std::shared_ptr<internal::FeedbackState>& claimed);
  void refuse(CallArguments& arguments, ErrorInfo failure);
  void note_posted(Operation& posted);
  void post_message(Group& group, CallArguments&& arguments);

  Operation& begin_operation(Group& group, std::uint64_t number, CallArguments&& arguments);
  std::unique_ptr<Operation> make_operation(Group& group, const CallArguments& arguments);
  std::unique_ptr<Compute> make_compute(const Group& group, const CallArguments& arguments) const;

  // ---- small calls on the spot
  bool exchange(Group& group, CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work);
  void prepare_exchange(Group& group, const CallArguments& arguments);
  void promote(Group& group, std::uint64_t sequence, CallArguments&& arguments);

  EngineParts& parts_;
  FailureHandler& failures_;
  PeerFailures& peer_failures_;
  FrameDispatcher& dispatcher_;
};

// Opens and closes groups. Where that is refused memory, it throws std::bad_alloc and has done nothing.
class GroupLifecycle {
 public:
  GroupLifecycle(EngineParts& parts, FailureHandler& failures, MismatchDetector& mismatches, GroupShrinker& shrinker,
                 FrameDispatcher& dispatcher)
      : parts_(parts), failures_(failures), mismatches_(mismatches), shrinker_(shrinker), dispatcher_(dispatcher) {}

  // A group of `ranks` (world ranks, this one among them). InvalidArgument if the id is taken. Where members of the
  // group `parent` make it together, a failure of that group refuses it, and fails it until end_opening(): some members
  // may never open it. Only the loss of a rank that is not among `ranks` does neither.
  Status open(std::uint64_t id, std::string name, std::vector<int> ranks,
              std::optional<std::uint64_t> parent = std::nullopt);
  // All members have opened it.
  void end_opening(std::uint64_t id);
  // Takes no memory.
  void close(std::uint64_t id);
  // Fails a group that this rank has no memory for on its other `ranks` (world ranks), which have opened it or will.
  // Closes it here. Takes no memory, and tries until all are notified, for kMaxRefusals groups at a time.
  void refuse(std::uint64_t id, std::vector<int>&& ranks);
  // Fails the group here and, by a poison frame, on its other members.
  void fail(std::uint64_t id, ErrorInfo failure);
  // The same where a call of several operations has no memory to go on.
  void run_out_of_memory(std::uint64_t id);

  // Takes a board cell for the group, if the transport has a free one. use_board() then says whether all members have.
  bool prepare_board(std::uint64_t id);
  void use_board(std::uint64_t id, bool use);
  bool has_board(std::uint64_t id) const;

  // Completes `work` with the group's failure, at once if there is one, or well when the group is closed.
  void notify_when_failed(std::uint64_t id, std::shared_ptr<internal::WorkState> work);
  // Completes `work` once the group has no operation in flight. Takes no memory, once for each open group.
  void notify_when_quiet(std::uint64_t id, std::shared_ptr<internal::WorkState> work);
  // Completes the Works of groups that are quiet now.
  void notify_quiet();

 private:
  EngineParts& parts_;
  FailureHandler& failures_;
  MismatchDetector& mismatches_;
  GroupShrinker& shrinker_;
  FrameDispatcher& dispatcher_;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<internal::WorkState>>> quiet_waiters_;
};

// What ends calls and groups.
struct FailureParts {
  explicit FailureParts(EngineParts& parts)
      : handler(parts), mismatches(parts, handler), peers(parts, handler), shrinker(parts, handler, peers) {}

  FailureHandler handler;
  MismatchDetector mismatches;
  PeerFailures peers;
  GroupShrinker shrinker;
};

class Engine {
 public:
  Engine(Transport& transport, const Clock& clock, EngineOptions options);
  ~Engine();

  GroupLifecycle& groups() { return groups_; }
  GroupShrinker& shrinker() { return failures_.shrinker; }

  // The slices and the window (0: ranks are near) of calls from now on, alike on all ranks; none is in flight.
  void use_sizes(std::size_t slice_bytes, std::uint64_t window_bytes) {
    parts_.options.slice_bytes = slice_bytes;
    parts_.frame_sender.eager().use_window(window_bytes);
  }
  // How often progress() was called. Any thread may ask.
  std::uint64_t rounds() const { return parts_.rounds.load(std::memory_order_relaxed); }
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
  // How long a rank that leaves waits for peers that take nothing of what it has sent. For the peer timeout if one on
  // another host may need it: the network between them may be out for some seconds.
  Nanoseconds leave_patience() const;
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

  EngineParts parts_;
  FailureParts failures_;
  FrameDispatcher dispatcher_;
  CallStarter starter_;
  GroupLifecycle groups_;
};

}  // namespace qccl::engine
