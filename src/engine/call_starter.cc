#include "engine/engine.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "engine/collective/cell_operation.h"
#include "engine/collective/plan_operation.h"
#include "engine/compute/device_compute.h"
#include "engine/compute/host_compute.h"
#include "engine/message/mailbox.h"
#include "kernels/float_environment.h"

namespace qccl::engine {

// A call that there is no memory for fails its group: the other members have it or will.
void CallStarter::post(CallArguments&& arguments) {
  const auto work = arguments.work;
  Group* const target = parts_.groups.find(arguments.group);
  std::shared_ptr<internal::FeedbackState> claimed;
  const std::size_t before = parts_.operations.size();
  try {
    begin(target, std::move(arguments), claimed);
  } catch (const std::bad_alloc&) {
    if (target != nullptr) failures_.run_out(*target, nullptr);
    if (parts_.operations.size() > before) return;  // ends with the group
    if (claimed != nullptr) claimed->end(false);
    parts_.ended.push(work, target != nullptr ? target->failure : failures_.no_memory());
  }
}

void CallStarter::begin(Group* target, CallArguments&& arguments, std::shared_ptr<internal::FeedbackState>& claimed) {
  if (target == nullptr) {
    return refuse(arguments, {.kind = ErrorKind::misuse, .message = "QCCL: this communicator is closed"});
  }
  if (target->failure) return refuse(arguments, *target->failure);
  if (arguments.message) return post_message(*target, std::move(arguments));
  if (arguments.feedback != nullptr) {
    arguments.random_counter = arguments.feedback->claim(device_of_lanes(arguments));
    if (!arguments.random_counter) {
      return refuse(arguments,
                    {.kind = ErrorKind::misuse, .message = fmt::format("QCCL: {}", internal::FeedbackState::kInUse)});
    }
    claimed = arguments.feedback;
  }
  if (arguments.plan->codec() != nullptr && !arguments.random_counter)
    arguments.random_counter = target->compressed_calls++;
  const std::uint64_t sequence = target->next_sequence++;
  Operation& posted = begin_operation(*target, sequence, std::move(arguments));
  const std::uint64_t admission_bytes = posted.admission_bytes();
  posted.defer(admission_bytes > 0 && !target->admission.post(admission_bytes));
  note_posted(posted);
  target->remember(sequence, posted.plan());
  if (!target->stored.empty()) dispatcher_.replay_stored(*target, sequence);
  if (!target->failure) peer_failures_.look_for_absent(posted);
}

void CallStarter::refuse(CallArguments& arguments, ErrorInfo failure) {
  if (failure.operation.empty()) failure.operation = arguments.name();
  failure.rank = parts_.options.rank.value();
  auto shared = std::make_shared<const ErrorInfo>(std::move(failure));
  parts_.ended.push(std::move(arguments.work), std::move(shared));
}

void CallStarter::note_posted(Operation& posted) {
  parts_.operations.note_deadline(posted.deadline());
  if (posted.work() != nullptr) posted.work()->set_number(posted.sequence());
  parts_.recorder.begin(posted);
}

// Makes the call an operation in flight.
Operation& CallStarter::begin_operation(Group& group, std::uint64_t number, CallArguments&& arguments) {
  std::unique_ptr<Operation> operation = parts_.operations.take_parked(group, arguments);
  if (operation == nullptr) operation = make_operation(group, arguments);
  TimePoint posted = kForever;
  if (operation->is_on_board()) {
    parts_.operations.note_untimed();
  } else {
    posted = parts_.now = parts_.clock.now();
  }
  operation->begin(number, std::move(arguments), posted);
  return parts_.operations.add(std::move(operation));
}

std::unique_ptr<Operation> CallStarter::make_operation(Group& group, const CallArguments& arguments) {
  FrameSender& sender = parts_.frame_sender;
  if (arguments.message && arguments.message->incoming) return std::make_unique<RecvOperation>(group, sender);
  if (arguments.message) return std::make_unique<SendOperation>(group, sender, parts_.options.slice_bytes);
  const ExecutablePlan& plan = *arguments.plan;
  if (reduces_on_board(arguments)) return std::make_unique<MappedOperation>(group, sender, parts_.pool, plan);
  if (plan.call().board) return std::make_unique<CellOperation>(group, sender, parts_.pool);
  return std::make_unique<PlanOperation>(group, sender, plan, make_compute(group, arguments));
}

std::unique_ptr<Compute> CallStarter::make_compute(const Group& group, const CallArguments& arguments) const {
  const ComputeContext context{arguments.plan.get(), group.world(), group.rank, &parts_.pool, parts_.options.seed};
  if (parts_.options.make_compute) return parts_.options.make_compute(context);
  if (has_device_lanes(arguments)) return std::make_unique<DeviceCompute>(context);
  return std::make_unique<HostCompute>(context);
}

void CallStarter::post_message(Group& group, CallArguments&& arguments) {
  Mailbox& box = mailbox_of(group, parts_.frame_sender);
  const bool is_incoming = arguments.message->incoming;
  Operation& posted = begin_operation(group, box.next_post(), std::move(arguments));
  const Status matched = is_incoming ? box.match_arrival(static_cast<RecvOperation&>(posted)) : Status();
  note_posted(posted);
  if (!matched.ok()) {
    return failures_.fail(posted, matched.error().kind, matched.error().message);
  }
  peer_failures_.look_for_absent(posted);
}

// ---- small calls on the spot
//
// A call that finds the other ranks there has neither a Work nor an entry among the operations in flight. One that does
// not becomes an operation like any other, its own part published.

bool CallStarter::exchange_or_post(CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work) {
  Group* const target = parts_.groups.find(arguments.group);
  // Stored frames may be those of a peer that has made another call.
  const bool may_exchange = parts_.operations.empty() && target != nullptr && !target->failure &&
                            target->stored.empty() && !arguments.message && arguments.staged == nullptr &&
                            arguments.plan->call().board && !parts_.recorder.is_on();
  if (!may_exchange) {
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

// Bookkeeping comes after publish(), while the part is on its way to the other cores. Memory is taken before: peers may
// end the call once they have seen the part.
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

void CallStarter::prepare_exchange(Group& group, const CallArguments& arguments) {
  group.make_room_in_history();
  if (group.parked_exchange != nullptr) return;
  parts_.operations.make_room();
  group.parked_exchange.reset(static_cast<CellOperation*>(parts_.operations.take_parked(group, arguments).release()));
  if (group.parked_exchange != nullptr) return;
  group.parked_exchange = std::make_unique<CellOperation>(group, parts_.frame_sender, parts_.pool);
}

// Makes a call that has published its part an operation in flight.
void CallStarter::promote(Group& group, std::uint64_t sequence, CallArguments&& arguments) {
  group.parked_exchange->adopt(sequence, std::move(arguments));
  Operation& posted = parts_.operations.add(std::move(group.parked_exchange));
  parts_.operations.note_untimed();
  note_posted(posted);
  peer_failures_.look_for_absent(posted);
}

}  // namespace qccl::engine
