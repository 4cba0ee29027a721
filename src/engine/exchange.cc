// The part of CallStarter that does small calls on the spot. A call that finds the other ranks there has neither a Work
// nor a place among the operations in flight. One that does not becomes an operation like any other, its own part
// published.
#include <new>
#include <utility>

#include "engine/call_starter.h"
#include "engine/collective/cell_operation.h"
#include "kernels/float_environment.h"

namespace qccl::engine {

// Frames that are stored may be those of a peer that has made another call.
bool CallStarter::may_exchange(const Group* group, const CallArguments& arguments) const {
  return parts_.operations.empty() && group != nullptr && !group->failure && group->stored.empty() &&
         !arguments.message && arguments.plan->call().board && !parts_.recorder.is_on();
}

bool CallStarter::exchange_or_post(CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work) {
  Group* const target = parts_.groups.find(arguments.group);
  if (!may_exchange(target, arguments)) {
    arguments.work = work;
    post(std::move(arguments));
    return false;
  }
  try {
    return exchange(*target, std::move(arguments), work);
  } catch (const std::bad_alloc&) {
    failures_.run_out(*target, nullptr);
    if (parts_.operations.empty()) parts_.ended.push(work, target->failure);  // else it ends with the group
    return false;
  }
}

// What does not have to come before publish() comes after it, while the part is on its way to the other cores. But
// memory is taken before: the others may end the call once they have seen the part.
bool CallStarter::exchange(Group& group, CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work) {
  prepare_exchange(group, arguments);
  CellExchange& exchange = group.parked_exchange->exchange();
  const kernels::DefaultFloatEnvironment environment;
  exchange.begin(arguments, group.take_board_numbers(1));
  exchange.meeting().publish(exchange.own_part());
  const std::uint64_t sequence = group.next_sequence++;
  group.remember(sequence, *arguments.plan);
  if (exchange.meeting().look_and_ring()) {
    exchange.combine();
    exchange.meeting().end();
    return true;
  }
  arguments.work = work;
  promote(group, sequence, std::move(arguments));
  return false;
}

// Takes all memory that the call needs before its part is published.
void CallStarter::prepare_exchange(Group& group, const CallArguments& arguments) {
  group.make_room_in_history();
  if (group.parked_exchange != nullptr) return;
  parts_.operations.make_room();
  group.parked_exchange.reset(static_cast<CellOperation*>(parts_.operations.take_parked(group, arguments).release()));
  if (group.parked_exchange != nullptr) return;
  group.parked_exchange = std::make_unique<CellOperation>(group, parts_.frame_sender, parts_.pool);
}

// The call has published its part, and becomes an operation in flight.
void CallStarter::promote(Group& group, std::uint64_t sequence, CallArguments&& arguments) {
  group.parked_exchange->adopt(sequence, std::move(arguments));
  Operation& posted = parts_.operations.add(std::move(group.parked_exchange));
  parts_.operations.note_untimed();
  note_posted(posted);
  peer_failures_.look_for_absent(posted);
}

}  // namespace qccl::engine
