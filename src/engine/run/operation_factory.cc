#include "engine/run/operation_factory.h"

#include "engine/compute/host_compute.h"
#include "engine/run/mailbox.h"
#include "engine/run/plan_operation.h"

namespace qccl::engine {

std::unique_ptr<Operation> OperationFactory::make(Group& group, const CallArguments& arguments) const {
  const MessageContext messages{&pool_, options_.seed, options_.slice_bytes};
  if (arguments.message && arguments.message->incoming) {
    return std::make_unique<RecvOperation>(group, frame_sender_, messages);
  }
  if (arguments.message) return std::make_unique<SendOperation>(group, frame_sender_, messages);
  const ExecutablePlan& plan = *arguments.plan;
  if (reduces_on_board(arguments)) return std::make_unique<MappedOperation>(group, frame_sender_, pool_, plan);
  if (plan.call().board) return std::make_unique<CellOperation>(group, frame_sender_, pool_);
  return std::make_unique<PlanOperation>(group, frame_sender_, plan, make_compute(group, arguments));
}

std::unique_ptr<Compute> OperationFactory::make_compute(const Group& group, const CallArguments& arguments) const {
  const ComputeContext context{arguments.plan.get(), group.world(), group.rank, &pool_, options_.seed};
  if (options_.make_compute) return options_.make_compute(context);
  if (is_computed_by_device(arguments)) return arguments.device->make_compute(context);
  return std::make_unique<HostCompute>(context);
}

}  // namespace qccl::engine
