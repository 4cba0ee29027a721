// The part of Engine that does small calls on the spot: one that finds the other ranks there has neither a Work nor a
// place among the operations in flight. One that does not becomes an operation like any other, its own part published.
#include <new>

#include "engine/collective/cell_operation.h"
#include "engine/engine.h"
#include "kernels/float_environment.h"

namespace qccl::engine {

// Frames that are stored may be those of a peer that has made another call.
bool Engine::may_exchange(const Group* group, const CallArguments& arguments) const {
  return operations_.empty() && group != nullptr && !group->failure && group->stored.empty() && !arguments.message &&
         arguments.plan->call().board && !is_logging();
}

bool Engine::exchange_or_post(CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work) {
  Group* const target = group(arguments.group);
  if (!may_exchange(target, arguments)) {
    arguments.work = work;
    post(std::move(arguments));
    return false;
  }
  try {
    return exchange(*target, std::move(arguments), work);
  } catch (const std::bad_alloc&) {
    run_out(*target, nullptr);
    if (operations_.empty()) ended_.push(work, target->failure);  // else it ends with the group
    return false;
  }
}

bool Engine::exchange(Group& group, CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work) {
  const std::uint64_t sequence = group.next_sequence++;
  auto operation = make_exchange(group, sequence, std::move(arguments));
  group.remember(sequence, operation->plan());
  {
    const kernels::DefaultFloatEnvironment environment;
    static_cast<void>(operation->advance());  // without a log it can't fail
  }
  if (operation->finished()) {
    operation->retire();
    group.parked_exchange = std::move(operation);
    return true;
  }
  operation->set_work(work);
  operations_.push_back(std::move(operation));
  has_unstarted_ = true;
  note_posted(*operations_.back());
  look_for_absent(*operations_.back());
  return false;
}

std::unique_ptr<CellOperation> Engine::make_exchange(Group& group, std::uint64_t sequence, CallArguments&& arguments) {
  const std::uint64_t number = group.next_board_sequence++;
  auto reused = std::move(group.parked_exchange);
  if (reused == nullptr) reused.reset(static_cast<CellOperation*>(retired_.take(group, arguments).release()));
  if (reused == nullptr) {
    return std::make_unique<CellOperation>(group, sequence, std::move(arguments), kForever, frame_sender_, pool_,
                                           number);
  }
  reused->restart(sequence, std::move(arguments), kForever, number);
  return reused;
}

}  // namespace qccl::engine
