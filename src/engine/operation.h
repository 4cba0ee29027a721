// One call in flight on one rank, whatever carries it out: a plan, the board, a mapped buffer, a message.
//
// Nothing here blocks, and no span of the caller's memory outlives the operation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/call/call_arguments.h"
#include "engine/frame_sender.h"
#include "engine/group/group.h"

namespace qccl::internal {
class LogStore;
}

namespace qccl::engine {

// What an operation waits for, for reports and errors.
struct Waiting {
  std::vector<GroupRank> peers;
  std::uint64_t received_bytes = 0;
  std::uint64_t expected_bytes = 0;

  // "got 0 of 64 bytes"
  std::string progress() const;
};

// "1.4 Mbit/s"
std::string rate_text(std::uint64_t bytes, Nanoseconds duration);

// What the log will say of an operation besides its call.
struct LogNotes {
  bool is_wanted = false;  // false: the rest is not kept
  OperationTimes times;
  std::uint64_t wire_bytes = 0;
  std::uint64_t payload_bytes = 0;
};

// What every kind of operation has: its call, number, deadline and turn, and what the log will say of it.
class PostedCall {
 public:
  Group& group() const { return group_; }
  // Messages are numbered apart from collectives.
  std::uint64_t sequence() const { return sequence_; }
  const CallArguments& arguments() const { return arguments_; }
  const std::shared_ptr<internal::WorkState>& work() const { return arguments_.work; }
  // Null: the call's buffers are in host memory, and it waits for no stream.
  StagedCall* staged() const { return arguments_.staged.get(); }
  // A stream goes on when it ends, well or not, and its output does not overwrite an input that is to be kept.
  bool fills_if_failed() const { return work() != nullptr && work()->is_gated() && !arguments_.keeps_input; }
  bool is_message() const { return arguments_.message.has_value(); }
  // Only of collectives.
  const ExecutablePlan& plan() const { return *arguments_.plan; }
  const ResolvedCall& call() const { return plan().call(); }
  std::uint64_t fingerprint() const { return plan().fingerprint(); }

  TimePoint deadline() const { return deadline_; }
  // The deadline counts from `now`: for a call that was posted without looking at the clock.
  void start(TimePoint now) { deadline_ = saturating_add(now, arguments_.timeout); }
  // When data last moved for it.
  TimePoint last_moved() const { return last_moved_; }
  void note_moved(TimePoint now) { last_moved_ = now; }
  // Posted and not begun: not to be advanced.
  bool waits_for_turn() const { return waits_for_turn_; }
  void defer(bool waits) { waits_for_turn_ = waits; }

  LogNotes& log_notes() { return log_notes_; }
  // What the data sent so far would have been uncompressed.
  std::uint64_t plain_bytes() const { return plain_bytes_; }

 protected:
  explicit PostedCall(Group& group) : group_(group) {}
  ~PostedCall() = default;
  void note_sent(std::size_t plain_bytes) { plain_bytes_ += plain_bytes; }

  Group& group_;
  std::uint64_t sequence_;  // set by begin()
  CallArguments arguments_;
  TimePoint deadline_ = kForever;
  TimePoint last_moved_{};
  LogNotes log_notes_;
  std::uint64_t plain_bytes_;  // set by begin()
  bool waits_for_turn_ = false;
};

// Runs one call after another: begin() each, then advance() it until it has finished() or failed.
class Operation : public PostedCall {
 public:
  Operation(Group& group, FrameSender& frame_sender) : PostedCall(group), frame_sender_(frame_sender) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  // Whether a parked one can run this call of its group.
  virtual bool can_run(const CallArguments& arguments) const = 0;
  virtual void begin(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted) {
    sequence_ = sequence;
    arguments_ = std::move(arguments);
    log_notes_ = {};
    plain_bytes_ = 0;
    last_moved_ = {};
    start(posted);
  }
  // The call has ended well; the operation holds nothing of the caller's until it begins another.
  virtual void park() {
    arguments_.work.reset();
    arguments_.region.reset();
    arguments_.staged.reset();
    arguments_.kept = {};
  }

  // It goes through shared memory cells.
  virtual bool is_on_board() const { return false; }
  // The call in words: see ResolvedCall::describe(). Of a call on device memory also who computes.
  virtual std::string describe() const;
  // Does what can be done now; true if anything moved. A failure ends the operation.
  virtual Result<bool> advance() = 0;
  virtual bool finished() const = 0;
  // A peer was seen to make another call with this sequence number.
  virtual bool has_differing_call() const { return false; }
  // A frame of this operation. Takes over those with data, and releases them when consumed.
  virtual Status on_frame(GroupRank peer, const wire::FrameHeader& header, const ReceivedFrame& frame) = 0;
  // A data frame is arriving: where its payload may be written now, or null.
  virtual std::byte* find_destination(GroupRank, const wire::FrameHeader&) { return nullptr; }
  // A payload may still arrive at a destination, or have been taken out of it.
  virtual bool awaits_placed() const { return false; }
  virtual Waiting waiting() const = 0;
  // Frames from or to this member are outstanding, so the operation can't end without it.
  virtual bool lacks(GroupRank member) const = 0;
  // Gives back every frame it holds.
  virtual void drop_frames() {}
  // The call has failed: the input that it keeps and its error feedback become what they were before it. Once.
  virtual void take_back() {}

  // What it counts for where long collectives take turns; 0: it takes none.
  std::uint64_t admission_bytes() const {
    if (is_message() || is_on_board()) return 0;
    const std::uint64_t elements = std::max(plan().input_elements(), plan().output_elements());
    const std::uint64_t bytes = elements * element_bytes(call().type);
    if (bytes < AdmissionControl::kLongBytes) return 0;
    if (call().window_bytes == 0) return bytes;
    // Between distant ranks as many run together as fill three windows with encoded bytes.
    const std::uint64_t most = std::max(AdmissionControl::kRunningBytes, 3 * call().window_bytes);
    const double encoded = static_cast<double>(plan().payload_limit(elements, false));
    return static_cast<std::uint64_t>(encoded * (AdmissionControl::kRunningBytes / static_cast<double>(most))) + 1;
  }

 protected:
  // CorruptData: what the peer, by its rank in the world, did that no honest peer does.
  Failure unexpected(GroupRank peer, const std::string& what) const;

  FrameSender& frame_sender_;
};

// The operations of this rank: in flight, in posting order, and parked. One thread. Entries may be null until
// erase_ended().
class OperationTable {
 public:
  using List = std::vector<std::unique_ptr<Operation>>;

  OperationTable() { parked_.reserve(kMaxParked); }

  bool empty() const { return list_.empty(); }
  std::size_t size() const { return list_.size(); }
  List::iterator begin() { return list_.begin(); }
  List::iterator end() { return list_.end(); }
  List::const_iterator begin() const { return list_.begin(); }
  List::const_iterator end() const { return list_.end(); }
  // A collective in flight, or null.
  Operation* find(const Group& group, std::uint64_t sequence) const;
  // The oldest in flight of the group, or null.
  Operation* oldest(const Group& group) const;

  Operation& add(std::unique_ptr<Operation> operation) { return *list_.emplace_back(std::move(operation)); }
  // The next add() to an empty table takes no memory.
  void make_room() { list_.reserve(1); }
  void clear() { list_.clear(); }
  void erase_ended() { std::erase(list_, nullptr); }

  // An operation that has ended well waits for the next call like its own, which then neither builds a schedule's state
  // nor allocates. take_parked() returns null if none can run the call.
  void park(std::unique_ptr<Operation> operation);
  std::unique_ptr<Operation> take_parked(const Group& group, const CallArguments& arguments);
  // The group is about to go.
  void forget(const Group& group) {
    std::erase_if(parked_, [&](const auto& operation) { return &operation->group() == &group; });
  }

  // The earliest deadline; check it, then set it anew.
  TimePoint next_deadline() const { return next_deadline_; }
  void set_next_deadline(TimePoint deadline) { next_deadline_ = deadline; }
  void note_deadline(TimePoint deadline) { next_deadline_ = std::min(next_deadline_, deadline); }
  // An operation has begun without a look at the clock, which takes a tenth of a small operation's time. Its deadline
  // counts from the next start_timers(), if it lasts that long.
  void note_untimed() { has_untimed_ = true; }
  void start_timers(TimePoint now);

 private:
  // As many different calls as a program repeats; the operation of a large plan of 64 ranks takes some 200 KiB.
  static constexpr std::size_t kMaxParked = 32;

  List list_;
  std::vector<std::unique_ptr<Operation>> parked_;  // the one used last at the end
  TimePoint next_deadline_ = kForever;
  bool has_untimed_ = false;
};

// Writes operations to the communication log; the only code that takes times for it. One thread, but is_on(). The
// others outlive it.
class OperationRecorder {
 public:
  // `log` may be null: nothing is recorded.
  OperationRecorder(std::shared_ptr<internal::LogStore> log, const Clock& clock, FrameSender& frame_sender)
      : log_(std::move(log)), clock_(clock), frame_sender_(frame_sender) {}

  // Some operations may be logged. Any thread may ask.
  bool is_on() const;
  // The operation was posted.
  void begin(Operation& operation) const;
  // operation.advance(), measured.
  Result<bool> advance(Operation& operation) const;
  // The operation has ended, well if `failure` is null. Without memory for the record, the log lacks it.
  void end(Operation& operation, const ErrorInfo* failure) const;

 private:
  void add(Operation& operation, const ErrorInfo* failure) const;

  const std::shared_ptr<internal::LogStore> log_;
  const Clock& clock_;
  FrameSender& frame_sender_;
};

}  // namespace qccl::engine
