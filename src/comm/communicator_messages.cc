// The part of CommunicatorState that deals with messages and with calls in groups.
#include <fmt/format.h>

#include <limits>

#include "comm/communicator_state.h"

namespace qccl::internal {

using engine::ArgumentsList;
using engine::CallArguments;

namespace {

// Why there can be no such message, or "".
std::string invalid_reason(const comm::MessageCall& call, int world) {
  const int lowest = call.incoming ? kAnySource : 0;
  const std::uint64_t limit = std::numeric_limits<std::int64_t>::max() / element_bytes(call.type);
  if (call.peer < lowest || call.peer >= world) {
    return fmt::format("rank {} is no rank of a group of {}", call.peer, world);
  }
  if (call.options.tag < 0) return fmt::format("tag {} is negative", call.options.tag);
  if (call.count > limit) return fmt::format("count {} is over the limit of {}", call.count, limit);
  if (call.count > 0 && (call.incoming ? call.output : call.input) == nullptr) {
    return fmt::format("{} elements with a null buffer", call.count);
  }
  return {};
}

void throw_failure(const WorkState& work) {
  if (work.failure()) throw Error(*work.failure());
}

// One work for all of them.
std::shared_ptr<WorkState> join(const ArgumentsList& calls, std::shared_ptr<WorkState> whole) {
  whole->expect_parts(calls.size());
  whole->set_recorded(false);
  for (const CallArguments& each : calls) {
    each.work->join(whole);
    each.work->set_recorded(false);
  }
  if (calls.empty()) whole->complete();
  return whole;
}

}  // namespace

CallArguments CommunicatorState::make_arguments(const MessageCall& call, comm::Context& context) {
  if (const std::string problem = invalid_reason(call, size()); !problem.empty()) {
    throw wrong_argument(context, call.incoming ? "recv" : "send", problem);
  }
  CallArguments arguments;
  arguments.group = id_;
  arguments.message = {.incoming = call.incoming,
                       .peer = GroupRank(call.peer),
                       .tag = call.options.tag,
                       .count = call.count,
                       .type = call.type};
  arguments.input = static_cast<const std::byte*>(call.input);
  arguments.output = static_cast<std::byte*>(call.output);
  arguments.timeout = call.options.timeout ? Nanoseconds(*call.options.timeout) : timeout_;
  if (context.log()->is_on()) arguments.log_name = call.options.log_name;
  return arguments;
}

int CommunicatorState::run(const MessageCall& call) {
  std::shared_ptr<comm::Context> context;
  CallArguments arguments = prepare(call, context);
  if (record(arguments, *context)) return kAnySource;
  const auto work = context->driver().run(std::move(arguments));
  throw_failure(*work);
  return work->source();
}

std::shared_ptr<WorkState> CommunicatorState::post(const MessageCall& call) {
  std::shared_ptr<comm::Context> context;
  CallArguments arguments = prepare(call, context);
  return begin(std::move(arguments), context);
}

int CommunicatorState::run(const MessageCall& send, const MessageCall& receive) {
  std::shared_ptr<comm::Context> context = this->context();
  const MessageCall both[] = {send, receive};
  ArgumentsList calls = prepare_all<MessageCall>(both, context);
  if (calls.empty()) return kAnySource;
  const auto received = calls.back().work;
  const auto whole = join(calls, context->driver().make_work());
  context->driver().run(std::move(calls), *whole);
  throw_failure(*whole);
  return received->source();
}

// ---- several calls as one

// What is left to post: nothing if the calling thread records.
template <class AnyCall>
ArgumentsList CommunicatorState::prepare_all(std::span<const AnyCall> calls, std::shared_ptr<comm::Context>& context) {
  ArgumentsList prepared;
  prepared.reserve(calls.size());
  for (const AnyCall& call : calls) {
    CallArguments arguments = prepare(call, context);
    make_work(arguments, *context);
    if (!context->recorder().record(arguments)) prepared.push_back(std::move(arguments));
  }
  return prepared;
}

void CommunicatorState::run(std::span<const CollectiveCall> calls) {
  std::shared_ptr<comm::Context> context = this->context();
  ArgumentsList prepared = prepare_all(calls, context);
  const auto whole = join(prepared, context->driver().make_work());
  context->driver().run(post_all_but_last(*context, std::move(prepared)), *whole);
  throw_failure(*whole);
}

// Recorded ones have no work but their group's.
std::shared_ptr<WorkState> CommunicatorState::post(std::span<const CollectiveCall> calls) {
  std::shared_ptr<comm::Context> context = this->context();
  const auto recorded = context->recorder().work();
  ArgumentsList prepared = prepare_all(calls, context);
  if (recorded != nullptr) return recorded;
  auto whole = context->driver().make_work();
  whole->context = context;
  join(prepared, whole);
  context->driver().post(post_all_but_last(*context, std::move(prepared)));
  return whole;
}

void CommunicatorState::group_start() {
  const auto context = this->context();
  if (context->recorder().start()) return;
  throw Error(
      {.kind = ErrorKind::misuse,
       .message = fmt::format("QCCL rank {}: group_start() twice without group_end() in one thread", context->rank()),
       .rank = context->rank()});
}

std::shared_ptr<WorkState> CommunicatorState::group_end() {
  const auto context = this->context();
  comm::CallBatch::Recording recording = context->recorder().end();
  if (recording.work == nullptr) {
    throw Error({.kind = ErrorKind::misuse,
                 .message = fmt::format("QCCL rank {}: group_end() without group_start() in this thread, or a call in "
                                        "between was refused",
                                        context->rank()),
                 .rank = context->rank()});
  }
  recording.work->context = context;
  const auto whole = join(recording.calls, recording.work);
  context->driver().post(post_all_but_last(*context, std::move(recording.calls)));
  return whole;
}

}  // namespace qccl::internal
