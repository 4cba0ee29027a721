// One call in flight on one rank, whatever carries it out: a plan, the board, a mapped buffer, a message.
//
// Nothing here blocks, and no span of the caller's memory outlives the operation.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/rank.h"
#include "engine/call/call_arguments.h"
#include "engine/compute/scratch_pool.h"
#include "engine/frame_sender.h"
#include "engine/group/group.h"
#include "plan/plan.h"

namespace qccl::engine {

// Slices of a stream that may be on their way or waiting: 8 x 128 KiB cover 1 ms at 8 Gbit/s.
inline constexpr std::size_t kWindow = 8;

// What an operation waits for, in words and numbers, for the error of a missed deadline.
struct Waiting {
  std::vector<GroupRank> peers;
  std::uint64_t received_bytes = 0;
  std::uint64_t expected_bytes = 0;
};

// What the log will say of an operation besides its call.
struct LogNotes {
  bool is_wanted = false;  // else the rest is not kept
  OperationTimes times;
  std::uint64_t wire_bytes = 0;
  std::uint64_t payload_bytes = 0;
};

class Operation {
 public:
  Operation(const Group& group, std::uint64_t sequence, CallArguments&& arguments, TimePoint posted,
            FrameSender& frame_sender, ScratchPool& pool)
      : group_(group),
        sequence_(sequence),
        arguments_(std::move(arguments)),
        deadline_(saturating_add(posted, arguments_.timeout)),
        frame_sender_(frame_sender),
        pool_(pool) {}
  virtual ~Operation() = default;

  // Whether a retired one can do this call, which it then begins by restart(). Each kind has its
  // own way to restart.
  virtual bool serves(const Group& group, const CallArguments& arguments) const = 0;
  // It has ended well, and holds nothing of the caller's from now on.
  virtual void retire() {
    arguments_.work.reset();
    arguments_.region.reset();
  }

  // Messages are numbered apart from collectives.
  virtual bool is_message() const { return false; }
  // It goes through shared memory cells.
  virtual bool is_on_board() const { return false; }
  // "all_reduce", "send"
  std::string name() const { return std::string(operation_name(arguments_)); }
  // The call in words: see ResolvedCall::describe().
  virtual std::string describe() const { return call().describe(); }
  // Does what can be done now; true if anything moved. A failure ends the operation.
  virtual Result<bool> advance() = 0;
  virtual bool finished() const = 0;
  // A peer was seen to make another call with this sequence number.
  virtual bool has_differing_call() const { return false; }
  // A data frame of this operation. Takes over `frame` and releases it when consumed.
  virtual Status on_data(GroupRank peer, const wire::FrameHeader& header, const ReceivedFrame& frame) = 0;
  // Such a frame is on its way and may be the next of its kind to come: where its payload may be written now, or null.
  virtual std::byte* find_destination(GroupRank peer, const wire::FrameHeader& header) {
    static_cast<void>(peer);
    static_cast<void>(header);
    return nullptr;
  }
  // Something placed may still be on its way, or have been taken out of its place.
  virtual bool awaits_placed() const { return false; }
  virtual Status on_grant(GroupRank peer, const wire::FrameHeader& header) = 0;
  virtual Status on_request(GroupRank peer, const wire::FrameHeader& header) = 0;
  virtual Waiting waiting() const = 0;
  // Frames from or to this member are outstanding, so the operation can't end without it.
  virtual bool lacks(GroupRank member) const = 0;
  // Gives back every frame it holds.
  virtual void drop_frames() = 0;

  std::uint64_t sequence() const { return sequence_; }
  // Only of collectives.
  std::uint64_t fingerprint() const { return plan().fingerprint(); }
  const ExecutablePlan& plan() const { return *arguments_.plan; }
  const ResolvedCall& call() const { return plan().call(); }
  TimePoint deadline() const { return deadline_; }
  // The deadline counts from `now`: for one that was made without looking at the clock.
  void start(TimePoint now) { deadline_ = saturating_add(now, arguments_.timeout); }
  Nanoseconds timeout() const { return arguments_.timeout; }
  const Group& group() const { return group_; }
  const std::shared_ptr<internal::WorkState>& work() const { return arguments_.work; }
  const CallArguments& arguments() const { return arguments_; }
  // It counts for so much where long collectives take turns; 0: it takes none.
  std::uint64_t admission_bytes() const;
  // Posted and not begun: not to be advanced.
  bool waits_for_turn() const { return waits_for_turn_; }
  void defer(bool waits) { waits_for_turn_ = waits; }
  LogNotes& log_notes() { return log_notes_; }
  // What the data sent so far would have been uncompressed.
  std::uint64_t plain_bytes() const { return plain_bytes_; }

 protected:
  // The plan is the same as before, or does not matter to this kind of operation.
  void restart(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted) {
    sequence_ = sequence;
    arguments_ = std::move(arguments);
    log_notes_ = {};
    plain_bytes_ = 0;
    start(posted);
  }
  void note_sent(std::size_t plain_bytes) { plain_bytes_ += plain_bytes; }

  const Group& group_;
  std::uint64_t sequence_;
  CallArguments arguments_;
  TimePoint deadline_;
  FrameSender& frame_sender_;
  ScratchPool& pool_;

 private:
  LogNotes log_notes_;
  std::uint64_t plain_bytes_ = 0;
  bool waits_for_turn_ = false;
};

inline std::uint64_t Operation::admission_bytes() const {
  if (is_message() || is_on_board()) return 0;
  const std::uint64_t elements = std::max(plan().input_elements(), plan().output_elements());
  const std::uint64_t bytes = elements * element_bytes(call().type);
  return bytes < AdmissionControl::kLongBytes ? 0 : bytes;
}

}  // namespace qccl::engine
