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
#include "engine/frames/frame.h"
#include "engine/frames/frame_sender.h"
#include "engine/state/group.h"

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
  DevicePart* device() const { return arguments_.device.get(); }
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
  CallTimer& timer() { return timer_; }
  // For the ledger.
  CallEnd ending(bool well) const;
  // The data sent so far, and its size uncompressed.
  std::uint64_t payload_bytes() const { return payload_bytes_; }
  std::uint64_t plain_bytes() const { return plain_bytes_; }
  void note_payload(std::uint64_t bytes) { payload_bytes_ += bytes; }
  // Of this rank's input, as DeepSpeed counts it: the tensor that the call names first; of a scatter, its part.
  std::uint64_t input_bytes() const;

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
  CallTimer timer_;
  std::uint64_t payload_bytes_;  // set by begin()
  std::uint64_t plain_bytes_;    // set by begin()
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
    timer_ = {};
    payload_bytes_ = 0;
    plain_bytes_ = 0;
    last_moved_ = {};
    start(posted);
  }
  // The call has ended well; the operation holds nothing of the caller's until it begins another.
  virtual void park() {
    arguments_.work.reset();
    arguments_.region.reset();
    arguments_.device.reset();
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
  // A frame of this operation.
  virtual Status on_frame(GroupRank peer, Frame&& frame) = 0;
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

}  // namespace qccl::engine
