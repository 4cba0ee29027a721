#include "engine/call_starter.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "engine/collective/cell_operation.h"
#include "engine/collective/mapped_operation.h"
#include "engine/collective/plan_operation.h"
#include "engine/compute/host_compute.h"
#include "engine/message/mailbox.h"
#include "engine/message/message_operation.h"

namespace qccl::engine {

// A call that there is no memory for fails its group: it has a place among the calls of all members.
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
    if (!claim_feedback(arguments)) return;
    claimed = arguments.feedback;
  }
  if (arguments.plan->codec() != nullptr && !arguments.random_counter)
    arguments.random_counter = target->compressed_calls++;
  const std::uint64_t sequence = target->next_sequence++;
  Operation& posted = parts_.operations.add(make_operation(*target, sequence, std::move(arguments)));
  const std::uint64_t admission_bytes = posted.admission_bytes();
  posted.defer(admission_bytes > 0 && !target->admission.post(admission_bytes));
  note_posted(posted);
  target->remember(sequence, posted.plan());
  parts_.operations.note_deadline(posted.deadline());
  if (!target->stored.empty()) dispatcher_.replay_stored(*target, sequence);
  if (!target->failure) peer_failures_.look_for_absent(posted);
}

void CallStarter::refuse(CallArguments& arguments, ErrorInfo failure) {
  if (failure.operation.empty()) failure.operation = operation_name(arguments);
  failure.rank = parts_.options.rank.value();
  auto shared = std::make_shared<const ErrorInfo>(std::move(failure));
  parts_.ended.push(std::move(arguments.work), std::move(shared));
}

// Else refuses the call.
bool CallStarter::claim_feedback(CallArguments& arguments) {
  if (const auto counter = arguments.feedback->claim()) {
    arguments.random_counter = *counter;
    return true;
  }
  refuse(arguments, {.kind = ErrorKind::misuse, .message = "QCCL: " + arguments.feedback->unusable_reason()});
  return false;
}

// Its number is known, to its work and to the log.
void CallStarter::note_posted(Operation& posted) {
  if (posted.work() != nullptr) posted.work()->set_number(posted.sequence());
  parts_.recorder.begin(posted);
}

std::unique_ptr<Operation> CallStarter::make_operation(Group& group, std::uint64_t sequence,
                                                       CallArguments&& arguments) {
  if (reduces_on_board(arguments)) {
    parts_.operations.note_untimed();
    const std::uint64_t first =
        std::exchange(group.next_board_sequence, group.next_board_sequence + MappedOperation::kRounds);
    return parts_.operations.reuse_or_make<MappedOperation>(
        group, arguments,
        [&](MappedOperation& retired) { retired.restart(sequence, std::move(arguments), kForever, first); },
        [&] {
          return std::make_unique<MappedOperation>(group, sequence, std::move(arguments), kForever, parts_.frame_sender,
                                                   parts_.pool, first);
        });
  }
  if (arguments.plan->call().board) {
    parts_.operations.note_untimed();
    const std::uint64_t number = group.next_board_sequence++;
    return make_cell_operation(group, sequence, std::move(arguments), number);
  }
  parts_.now = parts_.clock.now();
  return parts_.operations.reuse_or_make<PlanOperation>(
      group, arguments, [&](PlanOperation& retired) { retired.restart(sequence, std::move(arguments), parts_.now); },
      [&] {
        auto compute = make_compute(group, *arguments.plan);
        return std::make_unique<PlanOperation>(group, sequence, std::move(arguments), parts_.now, parts_.frame_sender,
                                               parts_.pool, std::move(compute));
      });
}

std::unique_ptr<CellOperation> CallStarter::make_cell_operation(Group& group, std::uint64_t sequence,
                                                                CallArguments&& arguments, std::uint64_t number) {
  return parts_.operations.reuse_or_make<CellOperation>(
      group, arguments,
      [&](CellOperation& retired) { retired.restart(sequence, std::move(arguments), kForever, number); },
      [&] {
        return std::make_unique<CellOperation>(group, sequence, std::move(arguments), kForever, parts_.frame_sender,
                                               parts_.pool, number);
      });
}

std::unique_ptr<Compute> CallStarter::make_compute(const Group& group, const ExecutablePlan& plan) {
  const ComputeContext context{&plan, group.world(), group.rank, &parts_.pool, parts_.options.seed};
  if (parts_.options.make_compute) return parts_.options.make_compute(context);
  return std::make_unique<HostCompute>(context);
}

void CallStarter::post_message(Group& group, CallArguments&& arguments) {
  parts_.now = parts_.clock.now();
  Mailbox& box = mailbox_of(group, parts_.frame_sender);
  const std::uint64_t number = box.next_post();
  Status matched;
  Operation* added = nullptr;
  if (arguments.message->incoming) {
    auto receive = parts_.operations.reuse_or_make<RecvOperation>(
        group, arguments, [&](RecvOperation& retired) { retired.restart(number, std::move(arguments), parts_.now); },
        [&] {
          return std::make_unique<RecvOperation>(group, number, std::move(arguments), parts_.now, parts_.frame_sender,
                                                 parts_.pool);
        });
    matched = box.match_arrival(*receive);
    added = &parts_.operations.add(std::move(receive));
  } else {
    added = &parts_.operations.add(parts_.operations.reuse_or_make<SendOperation>(
        group, arguments, [&](SendOperation& retired) { retired.restart(number, std::move(arguments), parts_.now); },
        [&] {
          return std::make_unique<SendOperation>(group, number, std::move(arguments), parts_.now, parts_.frame_sender,
                                                 parts_.pool, parts_.options.slice_bytes);
        }));
  }
  Operation& posted = *added;
  note_posted(posted);
  parts_.operations.note_deadline(posted.deadline());
  if (!matched.ok()) {
    return failures_.fail(posted, matched.error().kind, matched.error().message);
  }
  peer_failures_.look_for_absent(posted);
}

}  // namespace qccl::engine
