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
// Threads: one at a time (whoever holds the driver's token). Completions run outside of progress
// through take_ended().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/options.h"
#include "base/result.h"
#include "engine/call/call_arguments.h"
#include "engine/compute/buffer_pool.h"
#include "engine/compute/compute.h"
#include "engine/ended_works.h"
#include "engine/failure/control_queue.h"
#include "engine/failure/mismatch.h"
#include "engine/failure/peer_monitor.h"
#include "engine/frame_sender.h"
#include "engine/group_table.h"
#include "engine/operation.h"
#include "engine/operation_recorder.h"
#include "engine/retired_operations.h"
#include "qccl/status.h"
#include "transport/transport.h"

namespace qccl::engine {

inline constexpr const char* kNoMemory =
    "the system refused memory; free some, or raise the limit of the process or its container";

struct EngineOptions {
  int rank = 0;  // in the world
  int world = 1;
  std::size_t slice_bytes = kDefaultSliceBytes;  // of input; at most kMaxPayloadBytes
  bool checksum = true;                          // of payloads between hosts
  std::uint64_t seed = 0;                        // of codecs that draw random numbers
  Nanoseconds peer_timeout = std::chrono::seconds(60);
  Nanoseconds heartbeat_interval = std::chrono::milliseconds(250);
  std::vector<int> hosts{};                   // of each rank in the world; empty: all share one
  std::shared_ptr<internal::LogStore> log{};  // null: none
  ComputeFactory make_compute{};              // empty: HostCompute
};

class CellOperation;

class Engine : private PayloadPlacement {
 public:
  Engine(Transport& transport, const Clock& clock, EngineOptions options);
  ~Engine() override;

  // A group of `ranks` (world ranks, this one among them). InvalidArgument if the id is taken. Where members of the
  // group `parent` make it together, a failure of that group refuses it, and fails it until end_opening(): some members
  // may never open it. Only the loss of a rank that is not among `ranks` does neither.
  Status open_group(std::uint64_t id, std::string name, std::vector<int> ranks,
                    std::optional<std::uint64_t> parent = std::nullopt);
  // All members have opened it.
  void end_opening(std::uint64_t id);
  // Takes no memory.
  void close_group(std::uint64_t id);
  // Tells the other `ranks` (world ranks) of a group that this one has no memory for it: they have opened it, or will.
  // Closes it if it is open here.
  // Takes no memory, and goes on until they are told, for kMaxRefusals groups at a time.
  void refuse_group(std::uint64_t id, std::vector<int>&& ranks);
  // Fails the group here and on its other members: a call that is made of several operations has no memory to go on.
  void run_out_of_memory(std::uint64_t id);
  // Takes a board cell for the group, if the transport has a board with a free one. It is used
  // only once use_board() says that all members have theirs.
  bool prepare_board(std::uint64_t id);
  void use_board(std::uint64_t id, bool use);
  bool has_board(std::uint64_t id) const;
  // The slices of calls from now on, alike on all ranks; none is in flight.
  void use_slices(std::size_t bytes) { options_.slice_bytes = bytes; }
  // Where ranks of this host share memory; else null. Lives as long as the transport.
  SharedHeap* heap() { return transport_.heap(); }

  // Some operations may be logged: posts should say when they were made. Any thread may ask.
  bool is_logging() const { return recorder_.is_on(); }

  // Takes the next sequence number of the group. A refused post completes with the failure.
  void post(CallArguments&& arguments);
  // The same for a call whose caller waits for it. A small one that has the engine to itself is done on the spot if the
  // other ranks are there: true, it has ended well, and `work` is not used. Else it is posted with `work`.
  bool exchange_or_post(CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work);

  // Moves what can be moved; true if anything did.
  bool progress();
  // The only operation in flight goes through the board.
  bool is_alone_on_board() const { return operations_.size() == 1 && operations_.front()->is_on_board(); }
  // The part of progress() that takes the steps of operations, for one alone on the board.
  bool advance_operations();
  // The next time at which progress() has something to do without any event.
  TimePoint next_timer() const;
  bool idle() const { return operations_.empty(); }
  // The work of the next operation that has ended, to be completed once no lock is held; or null.
  std::shared_ptr<internal::WorkState> take_ended() { return ended_.pop(); }

  // Its operations that have not ended, the oldest first, and what each waits for.
  std::vector<std::string> describe_in_flight(std::uint64_t id) const;
  // The error of a wait for `work` that was given up after `waited`: its first operation that has not ended, and whom
  // that waits for. Nothing if all have ended.
  std::optional<ErrorInfo> given_up(const internal::WorkState& work, Milliseconds waited) const;
  // Fails the group here and, by a poison frame, on its other members.
  void fail_group(std::uint64_t id, ErrorInfo failure);
  // Completes `work` once the group has no operation in flight. Takes no memory, once for each open group.
  void notify_when_quiet(std::uint64_t id, std::shared_ptr<internal::WorkState> work);
  // Every peer is to be told, by progress(), that this rank leaves in good order.
  void say_goodbye() { control_.say_goodbye(); }
  // No control frame waits to be sent.
  bool has_no_notes() const { return control_.empty(); }
  // Fails all groups without telling anybody: the process is closing.
  void shut_down(const ErrorInfo& reason);

  // Adds groups and calls in flight.
  void report(RankStatus& status) const;

  FrameSender& frame_sender() { return frame_sender_; }
  const EngineOptions& options() const { return options_; }

 private:
  Group* group(std::uint64_t id) { return groups_.find(id); }
  // The failure of the group that this one is being made from, if it fails this one too; else null.
  internal::SharedFailure failure_of_parent(const Group& opening);
  Operation* active(const Group& group, std::uint64_t sequence);
  // This rank's call of that number, in flight or remembered.
  struct OwnCall {
    std::uint64_t fingerprint;
    std::shared_ptr<const ResolvedCall> call;
  };
  std::optional<OwnCall> own_call(const Group& group, std::uint64_t sequence);
  std::unique_ptr<Operation> make_operation(Group& group, std::uint64_t sequence, CallArguments&& arguments);
  std::unique_ptr<CellOperation> make_cell_operation(Group& group, std::uint64_t sequence, CallArguments&& arguments,
                                                     std::uint64_t number);
  // A retired operation of that kind, restarted, or a new one.
  template <class Kind, class Restart, class Make>
  std::unique_ptr<Kind> reuse_or_make(const Group& group, const CallArguments& arguments, Restart restart, Make make) {
    std::unique_ptr<Operation> retired = retired_.take(group, arguments);
    if (retired == nullptr) return make();
    std::unique_ptr<Kind> reused(static_cast<Kind*>(retired.release()));
    restart(*reused);
    return reused;
  }

  // ---- small calls on the spot (engine_exchange.cc)
  bool may_exchange(const Group* group, const CallArguments& arguments) const;
  bool exchange(Group& group, CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work);
  void prepare_exchange(Group& group, const CallArguments& arguments);
  void promote(Group& group, std::uint64_t sequence, CallArguments&& arguments);

  // What post() does while there is memory; sets `claimed` to the error feedback that the call has got.
  void begin(Group* target, CallArguments&& arguments, std::shared_ptr<internal::FeedbackState>& claimed);
  void refuse(CallArguments& arguments, ErrorInfo failure);
  void end_turn(const Operation& ended);
  std::unique_ptr<Compute> make_compute(const Group& group, const ExecutablePlan& plan);
  void note_posted(Operation& posted);
  bool claim_feedback(CallArguments& arguments);

  // ---- messages (engine_messages.cc)
  Mailbox& mailbox(Group& group);
  void post_message(Group& group, CallArguments&& arguments);
  void on_message_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);

  bool move();
  // Its steps, and its end; true if anything moved.
  bool advance_operation(std::unique_ptr<Operation>& operation);
  bool receive_frames();
  void on_frame(const ReceivedFrame& frame);
  bool is_intact(const wire::FrameHeader& header, const ReceivedFrame& frame);
  std::byte* place(int peer, ConstBytes header) override;
  // Takes over the frame: handles, keeps or discards it.
  void on_group_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void on_member_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void on_operation_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void deliver(Operation& operation, int member, const wire::FrameHeader& header, const ReceivedFrame& frame);
  // For later, if not too many are kept already.
  void keep(std::vector<StoredFrame>& where, std::size_t kept, const wire::FrameHeader& header,
            const ReceivedFrame& frame);
  void keep_orphan(const wire::FrameHeader& header, const ReceivedFrame& frame);
  void discard_all(std::vector<StoredFrame>& stored);
  void replay_stored(Group& group, std::uint64_t sequence);

  void complete(Operation& operation, internal::SharedFailure failure);  // lets go of the caller's memory
  void sweep_failed_groups();
  void notify_quiet_groups();
  void set_failure(Group& group, ErrorInfo failure, bool tell_peers);
  void poison_peers(const Group& group, std::string_view text);
  void tell_members(Group& group);
  void tell_refusals();

  // ---- without memory (engine_memory.cc)
  void run_out(Group& group, const Operation* operation);
  internal::SharedFailure memory_failure(const Group& group, const Operation* operation) const;
  void fail_all_groups();
  void abandon_all_groups();
  void withdraw_placed();

  bool look_for_losses();
  void lose_peer(int peer, ErrorKind kind, const std::string& what, bool tell_others = true);
  // The same for a peer whose connection may still work: it is told, and then disconnected.
  void give_up(int peer, ErrorKind kind, const std::string& what);
  void on_given_up(int peer, ConstBytes payload);
  void look_for_absent(Operation& operation);
  void on_goodbye(int peer);
  void check_timers();
  void check_deadlines();
  void start_operations();
  void check_silent_peers();
  void on_poison(Group& group, int peer, ConstBytes payload);

  void on_fingerprint(Group& group, const wire::FrameHeader& header, int peer, ConstBytes payload);
  Mismatch* begin_mismatch(Group& group, std::uint64_t sequence);
  void check_mismatches();

  ErrorInfo failure_of(const Operation& operation, ErrorKind kind, const std::string& what) const;
  ErrorInfo group_error(const Group& group, ErrorKind kind, int peer, const std::string& what) const;

  Transport& transport_;
  const Clock& clock_;
  EngineOptions options_;
  FrameSender frame_sender_;
  BufferPool pool_;
  GroupTable groups_;
  std::vector<std::unique_ptr<Operation>> operations_;  // in posting order
  RetiredOperations retired_;
  std::vector<StoredFrame> due_;  // by replay_stored()
  PeerMonitor peers_;
  ControlQueue control_;
  OperationRecorder recorder_;
  EndedWorks ended_;
  std::optional<ReceivedFrame> recorded_;  // that there was no memory to keep
  // Made while there is memory.
  internal::SharedFailure no_memory_;
  internal::SharedFailure closed_;
  std::vector<Group> refused_;       // never opened here, their members not told yet; has its room from the beginning
  internal::SharedFailure failure_;  // of all groups, for good
  std::vector<Mismatch> mismatches_;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<internal::WorkState>>> quiet_waiters_;
  bool sweep_needed_ = false;
  TimePoint now_{};
  TimePoint next_deadline_ = kForever;
  bool has_unstarted_ = false;  // operations whose deadline does not count yet
};

}  // namespace qccl::engine
