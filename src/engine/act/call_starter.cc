#include "engine/act/call_starter.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "engine/run/cell_operation.h"
#include "engine/run/mailbox.h"
#include "kernels/float_environment.h"

namespace qccl::engine {
namespace {

// Nothing else is parked there.
CellOperation& parked_exchange(Group& group) { return static_cast<CellOperation&>(*group.parked_exchange); }

}  // namespace

// A call that there is no memory for fails its group: the other members have it or will.
void CallStarter::post(CallArguments&& arguments) {
  const auto work = arguments.work;
  Group* const target = groups_.find(arguments.group);
  std::shared_ptr<internal::FeedbackState> claimed;
  const std::size_t before = operations_.size();
  try {
    begin(target, std::move(arguments), claimed);
  } catch (const std::bad_alloc&) {
    if (target != nullptr) failures_.run_out(*target, nullptr);
    if (operations_.size() > before) return;  // ends with the group
    if (claimed != nullptr) claimed->end(false);
    ended_.push(work, target != nullptr ? target->failure : failures_.no_memory());
  }
}

void CallStarter::begin(Group* target, CallArguments&& arguments, std::shared_ptr<internal::FeedbackState>& claimed) {
  if (target == nullptr) {
    return refuse(arguments, {.kind = ErrorKind::misuse, .message = "QCCL: this communicator is closed"});
  }
  if (target->failure) return refuse(arguments, *target->failure);
  if (arguments.feedback != nullptr) {
    arguments.random_counter = arguments.feedback->claim(device_of(arguments), arguments.feedback_part);
    if (!arguments.random_counter) {
      return refuse(arguments,
                    {.kind = ErrorKind::misuse, .message = fmt::format("QCCL: {}", internal::FeedbackState::kInUse)});
    }
    claimed = arguments.feedback;
  }
  if (arguments.message) return post_message(*target, std::move(arguments));
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
  failure.rank = options_.rank.value();
  auto shared = std::make_shared<const ErrorInfo>(std::move(failure));
  ended_.push(std::move(arguments.work), std::move(shared));
}

void CallStarter::note_posted(Operation& posted) {
  operations_.note_deadline(posted.deadline());
  if (posted.work() != nullptr) posted.work()->set_number(posted.sequence());
  recorder_.begin(posted);
}

// Makes the call an operation in flight.
Operation& CallStarter::begin_operation(Group& group, std::uint64_t number, CallArguments&& arguments) {
  std::unique_ptr<Operation> operation = operations_.take_parked(group, arguments);
  if (operation == nullptr) operation = factory_.make(group, arguments);
  TimePoint posted = kForever;
  CallTimer timer;
  if (operation->is_on_board()) {
    operations_.note_untimed();
    if (ledger_.samples()) timer = {clock_.look(), CallLedger::kSampled};
  } else {
    posted = clock_.read();
    timer = {posted, 1};
    ledger_.begin(posted);
  }
  operation->begin(number, std::move(arguments), posted);
  operation->timer() = timer;
  return operations_.add(std::move(operation));
}

void CallStarter::post_message(Group& group, CallArguments&& arguments) {
  Mailbox& box = mailbox_of(group);
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
  Group* const target = groups_.find(arguments.group);
  // Stored frames may be those of a peer that has made another call.
  const bool may_exchange = operations_.empty() && target != nullptr && !target->failure && target->stored.empty() &&
                            !arguments.message && arguments.device == nullptr && arguments.plan->call().board &&
                            !recorder_.is_on();
  if (!may_exchange) {
    arguments.work = work;
    post(std::move(arguments));
    return false;
  }
  try {
    return exchange(*target, std::move(arguments), work);
  } catch (const std::bad_alloc&) {
    failures_.run_out(*target, nullptr);
    if (operations_.empty()) ended_.push(work, target->failure);  // else it ends with the group
    return false;
  }
}

// Bookkeeping comes after publish(), while the part is on its way to the other cores. Memory is taken before: peers may
// end the call once they have seen the part.
bool CallStarter::exchange(Group& group, CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work) {
  prepare_exchange(group, arguments);
  CellExchange& exchange = parked_exchange(group).exchange();
  const kernels::DefaultFloatEnvironment environment;
  CallTimer timer;
  if (ledger_.samples()) timer = {clock_.look(), CallLedger::kSampled};
  exchange.begin(arguments, group.take_board_numbers(1));
  const ConstBytes part = exchange.own_part();
  exchange.meeting().publish(part);
  const std::uint64_t sequence = group.next_sequence++;
  group.remember(sequence, *arguments.plan);
  if (exchange.meeting().look_and_ring()) {
    exchange.combine();
    exchange.meeting().end();
    const CallEnd end{.group = *group.totals,
                      .number = sequence,
                      .kind = call_kind(arguments),
                      .counts = arguments.is_logged,
                      .bytes = part.size(),
                      .payload_bytes = part.size(),
                      .plain_bytes = part.size()};
    ledger_.end(end, timer, timer.weight > 0 ? clock_.look() : TimePoint{});
    return true;
  }
  arguments.work = work;
  promote(group, sequence, std::move(arguments), timer);
  return false;
}

void CallStarter::prepare_exchange(Group& group, const CallArguments& arguments) {
  group.make_room_in_history();
  if (group.parked_exchange != nullptr) return;
  operations_.make_room();
  group.parked_exchange = operations_.take_parked(group, arguments);
  if (group.parked_exchange == nullptr) group.parked_exchange = factory_.make_exchange(group);
}

// Makes a call that has published its part an operation in flight.
void CallStarter::promote(Group& group, std::uint64_t sequence, CallArguments&& arguments, const CallTimer& timer) {
  parked_exchange(group).adopt(sequence, std::move(arguments));
  Operation& posted = operations_.add(std::move(group.parked_exchange));
  posted.timer() = timer;
  operations_.note_untimed();
  note_posted(posted);
  peer_failures_.look_for_absent(posted);
}

}  // namespace qccl::engine
