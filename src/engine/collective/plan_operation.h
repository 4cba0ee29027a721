// An operation that executes a plan: runs the lanes of its schedule slice by slice.
//
// A lane is looked at when something came that it may wait for: a frame or a grant on one of its streams, or the end of
// the lane that it follows. Of those that found no room in the transport, the first of each peer looks every time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/collective/index_set.h"
#include "engine/collective/lane_queues.h"
#include "engine/collective/streams.h"
#include "engine/compute/compute.h"
#include "engine/operation.h"

namespace qccl::engine {

class PlanOperation final : public Operation {
 public:
  // `compute` is for arguments.plan.
  PlanOperation(const Group& group, std::uint64_t sequence, CallArguments&& arguments, TimePoint posted,
                FrameSender& frame_sender, ScratchPool& pool, std::unique_ptr<Compute> compute);
  ~PlanOperation() override;

  bool serves(const Group& group, const CallArguments& arguments) const override {
    return &group == &group_ && !arguments.message && !reduces_on_board(arguments) && arguments.plan == arguments_.plan;
  }
  void restart(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted);
  void retire() override;

  Result<bool> advance() override;
  bool finished() const override { return unfinished_lanes_ == 0; }
  Status on_data(GroupRank peer, const wire::FrameHeader& header, const ReceivedFrame& frame) override;
  std::byte* find_destination(GroupRank peer, const wire::FrameHeader& header) override;
  bool awaits_placed() const override { return streams_.awaits_placed(); }
  Status on_grant(GroupRank peer, const wire::FrameHeader& header) override;
  Status on_request(GroupRank peer, const wire::FrameHeader& header) override;
  Waiting waiting() const override { return streams_.waiting(); }
  bool lacks(GroupRank member) const override { return streams_.lacks(member); }
  void drop_frames() override;

 private:
  struct LaneProgress {
    const plan::Lane* lane;
    std::vector<std::size_t> streams;    // per step: index of its (first) stream
    std::vector<std::size_t> followers;  // lanes that begin when this one has ended
    std::uint64_t slices = 0;
    std::uint64_t slice = 0;
    std::size_t step = 0;
    std::size_t served = 0;  // peers of a send step that have their frame
    HeldSlice current;       // taken out of its stream and being added or copied
    HeldSlice pending;       // the first part of a raw reduction, only pointed at
    HeldSlice received;      // by recv_copy, for forward
  };
  // waits: something will come that wakes the lane; no_room: try again.
  enum class StepStatus { done, waits, no_room };
  struct Advance {
    bool moved = false;
    GroupRank starved_by;  // the peer for which there was no room
  };

  void end_feedback();
  void build_lanes();
  void begin();
  void add_streams(LaneProgress& run, const plan::Step& step);
  bool is_eager(std::uint64_t elements, bool raw) const;
  Status wake(std::optional<std::size_t> lane, GroupRank peer, const wire::FrameHeader& header, const char* what);
  Status unexpected(GroupRank peer, const wire::FrameHeader& header, const std::string& what) const;

  Result<Advance> advance_lane(std::size_t lane);
  Result<bool> advance_starved();
  void begin_slice(std::size_t lane);
  void end_slice(std::size_t lane);
  bool may_begin(const LaneProgress& run) const;
  Result<StepStatus> take(std::size_t lane);
  StepStatus send(std::size_t lane);
  StepStatus send_slice(std::size_t lane, std::size_t stream);
  Result<StepStatus> receive(std::size_t lane);
  void keep_or_release(LaneProgress& run, const plan::Step& step, bool keeps_part);

  std::unique_ptr<Compute> compute_;
  Streams streams_;
  std::vector<LaneProgress> lanes_;
  IndexSet awake_;  // lanes to be looked at
  LaneQueues starved_;
  std::size_t unfinished_lanes_ = 0;
};

}  // namespace qccl::engine
