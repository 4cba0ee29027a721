#pragma once

#include <memory>

#include "engine/compute/math_context.h"
#include "engine/frames/frame_sender.h"
#include "engine/run/cell_operation.h"
#include "engine/state/engine_options.h"
#include "engine/state/operation.h"

namespace qccl::engine {

// Makes the operations that run calls, each of the kind that its call needs. What it is made of outlives it and them.
class OperationFactory {
 public:
  OperationFactory(const EngineOptions& options, FrameSender& frame_sender, ScratchPool& pool)
      : options_(options), frame_sender_(frame_sender), pool_(pool) {}

  std::unique_ptr<Operation> make(Group& group, const CallArguments& arguments) const;
  // For a call that may be done on the spot.
  std::unique_ptr<CellOperation> make_exchange(Group& group) const {
    return std::make_unique<CellOperation>(group, frame_sender_, pool_);
  }

 private:
  std::unique_ptr<Compute> make_compute(const Group& group, const CallArguments& arguments) const;

  const EngineOptions& options_;
  FrameSender& frame_sender_;
  ScratchPool& pool_;
};

}  // namespace qccl::engine
