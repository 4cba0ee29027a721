// An operation that executes a plan: runs the lanes of its schedule slice by slice.
#pragma once

#include <memory>
#include <vector>

#include "engine/compute/compute.h"
#include "engine/compute/deferred_steps.h"
#include "engine/run/lane_scheduler.h"
#include "engine/run/streams.h"
#include "engine/state/operation.h"

namespace qccl::engine {

class PlanOperation final : public Operation {
 public:
  // For calls of `plan`, as `compute` is.
  PlanOperation(Group& group, FrameSender& frame_sender, const ExecutablePlan& plan, std::unique_ptr<Compute> compute);
  ~PlanOperation() override;

  bool can_run(const CallArguments& arguments) const override {
    return !arguments.message && !reduces_on_board(arguments) && arguments.plan == arguments_.plan &&
           is_computed_by_device(arguments) == (deferred_ != nullptr);
  }
  void begin(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted) override;
  void park() override;

  Result<bool> advance() override;
  bool finished() const override { return scheduler_.all_ended() && (deferred_ == nullptr || deferred_->is_idle()); }
  Status on_frame(GroupRank peer, Frame&& frame) override;
  std::byte* find_destination(GroupRank peer, const wire::FrameHeader& header) override;
  bool awaits_placed() const override { return inbound_.awaits_placed(); }
  Waiting waiting() const override;
  bool lacks(GroupRank member) const override;
  void drop_frames() override;
  void take_back() override;

 private:
  struct LaneProgress {
    const plan::Lane* lane;
    const std::vector<std::size_t>* first_streams;  // of each step
    std::vector<std::size_t> followers;             // lanes that are after this one
    std::uint64_t slices = 0;
    std::uint64_t open = 0;  // how many of them may begin
    std::uint64_t slice = 0;
    std::size_t step = 0;
    std::size_t sent = 0;  // frames of a send step, in the order of its peers
    HeldSlice current{};   // taken out of its stream and being added or copied
    HeldSlice pending{};   // the first part of a raw reduction, only pointed at
    HeldSlice received{};  // by recv_copy, for forward

    bool has_slices() const { return slice < open; }
    // What the lane would copy to the output now anyway may be received there; so may later slices, if the copy is what
    // it begins with.
    bool copies_next(std::size_t at, std::uint64_t number) const {
      const bool begins = lane->steps.front().kind == plan::StepKind::recv_copy;
      return lane->steps[at].kind == plan::StepKind::recv_copy && (begins ? at == 0 : at == step && number == slice);
    }
  };

  void end_feedback(bool well);
  // What is wrong with a frame that no stream expects.
  Failure refuse(GroupRank peer, const wire::FrameHeader& header) const;
  Result<LaneAdvance> advance_lane(std::size_t lane);
  void end_slice(std::size_t lane);
  std::uint64_t ended_slices(std::size_t lane) const;
  void note_ended(std::size_t lane);
  Result<StepStatus> take_step(std::size_t lane);
  StepStatus send(std::size_t lane);
  StepStatus send_slice(std::size_t lane, std::size_t stream);
  void open_followers(std::size_t lane, std::uint64_t ended);
  Result<StepStatus> receive(std::size_t lane);

  std::unique_ptr<Compute> compute_;
  InboundStreams inbound_;
  OutboundStreams outbound_;
  std::unique_ptr<DeferredSteps> deferred_;  // null: the Compute has none
  std::vector<LaneProgress> lanes_;
  LaneScheduler scheduler_;
};

}  // namespace qccl::engine
