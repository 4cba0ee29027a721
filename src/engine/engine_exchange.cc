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

// What does not have to come before publish() comes after it, while the part is on its way to the other cores. But
// memory is taken before: the others may end the call once they have seen the part.
bool Engine::exchange(Group& group, CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work) {
  prepare_exchange(group, arguments);
  CellExchange& exchange = group.parked_exchange->exchange();
  const kernels::DefaultFloatEnvironment environment;
  exchange.begin(arguments, group.next_board_sequence++);
  exchange.publish(exchange.own_part());
  const std::uint64_t sequence = group.next_sequence++;
  group.remember(sequence, *arguments.plan);
  if (exchange.look_and_ring()) {
    exchange.combine();
    exchange.end();
    return true;
  }
  arguments.work = work;
  promote(group, sequence, std::move(arguments));
  return false;
}

// Takes all memory that the call needs before its part is published.
void Engine::prepare_exchange(Group& group, const CallArguments& arguments) {
  group.make_room_in_history();
  if (group.parked_exchange != nullptr) return;
  if (operations_.capacity() == 0) operations_.reserve(1);
  group.parked_exchange.reset(static_cast<CellOperation*>(retired_.take(group, arguments).release()));
  if (group.parked_exchange != nullptr) return;
  group.parked_exchange =
      std::make_unique<CellOperation>(group, 0, CallArguments(arguments), kForever, frame_sender_, pool_, 0);
}

// The call has published its part, and becomes an operation in flight.
void Engine::promote(Group& group, std::uint64_t sequence, CallArguments&& arguments) {
  group.parked_exchange->adopt(sequence, std::move(arguments));
  operations_.push_back(std::move(group.parked_exchange));
  has_unstarted_ = true;
  note_posted(*operations_.back());
  look_for_absent(*operations_.back());
}

std::unique_ptr<CellOperation> Engine::make_cell_operation(Group& group, std::uint64_t sequence,
                                                           CallArguments&& arguments, std::uint64_t number) {
  return reuse_or_make<CellOperation>(
      group, arguments,
      [&](CellOperation& retired) { retired.restart(sequence, std::move(arguments), kForever, number); },
      [&] {
        return std::make_unique<CellOperation>(group, sequence, std::move(arguments), kForever, frame_sender_, pool_,
                                               number);
      });
}

}  // namespace qccl::engine
