// all_reduce in place of a buffer that every rank of the group maps (MappedRegion): each rank reduces its own chunk
// over all ranks' buffers, in rank order, and writes the result into all of them. Nothing goes through slots. The ranks
// meet on the board before, so that all inputs are there, and after, so that all results are.
#pragma once

#include <memory>
#include <vector>

#include "codec/geometry.h"
#include "engine/collective/cell_operation.h"

namespace qccl::engine {

class MappedOperation final : public CellOperation {
 public:
  // For calls of `plan` whose region is on the board.
  MappedOperation(Group& group, FrameSender& frame_sender, ScratchPool& pool, const ExecutablePlan& plan);

  bool can_run(const Group& group, const CallArguments& arguments) const override {
    return &group == &this->group() && !arguments.message && reduces_on_board(arguments) &&
           arguments.plan == arguments_.plan;
  }
  void begin(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted) override {
    CellOperation::begin(sequence, std::move(arguments), posted);
    done_ = 0;
  }

 private:
  ConstBytes own_part() override { return {}; }
  bool combine() override;
  void reduce_slice(std::uint64_t first, std::size_t elements);
  std::byte* buffer(GroupRank member, std::uint64_t element) const;

  const Range chunk_;  // of this rank
  std::uint64_t done_ = 0;
  SliceAccumulator sum_;
};

}  // namespace qccl::engine
