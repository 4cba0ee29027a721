// The part of CommunicatorState that tries what automatic compression may be: see comm/auto/compression_trial.h.
//
// Calls in groups and lists take what is the fastest so far and do not count. The ranks' comparison is an all_reduce of
// the group like any other: it is posted with one call and waited for before a later one.
#include "codec/registry.h"
#include "comm/communicator_state.h"

namespace qccl::internal {

using comm::CompressionTrial;
using comm::CompressionTrials;
using engine::CallArguments;

bool CommunicatorState::is_automatic(const CollectiveCall& call) const {
  const auto& asked = call.options.compression;
  return asked ? qccl::is_automatic(*asked) : defaults_to_automatic_.load(std::memory_order_relaxed);
}

// The ranks compare the shortest of their times: that of the rank which came last and waited for nobody.
CallArguments CommunicatorState::comparison(CompressionTrials::Class& calls, comm::Context& context) {
  calls.times.resize(calls.candidates.size());
  for (std::size_t i = 0; i < calls.times.size(); ++i) calls.times[i] = calls.trial.times()->of(i);
  const CallOptions options{.op = calls.from_slowest ? ReduceOp::max : ReduceOp::min,
                            .compression = none(),
                            .algorithm = Algorithm::one_shot};
  const auto bytes = reinterpret_cast<std::byte*>(calls.times.data());
  const CollectiveCall call{Collective::all_reduce, bytes, bytes, calls.times.size(), DataType::float64, options};
  CallArguments arguments = make_arguments(call, context);
  arguments.is_logged = false;
  arguments.awaited = true;  // the calls that follow drive it
  arguments.work = context.driver().make_work();
  calls.comparison = arguments.work;
  return arguments;
}

std::optional<CommunicatorState::TimedCall> CommunicatorState::advance_trial(const CollectiveCall& call) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<comm::Context> context = usable_context();
  if (context->recorder().work() != nullptr) return {};
  auto chosen = comm::choose_compression(call, size(), defaults_);
  if (call.has_private_counts() || !chosen.ok() || !qccl::is_automatic(*chosen)) return {};
  CompressionTrials::Class& calls = automatic_.of({call.collective, call.total_count(), call.type, *chosen});
  const CompressionTrial::Todo todo = calls.next();
  if (todo == CompressionTrial::Todo::compare) {
    CallArguments compare = comparison(calls, *context);
    lock.unlock();
    context->driver().post(std::move(compare));
    lock.lock();
  }
  if (todo == CompressionTrial::Todo::conclude) {
    const auto compared = std::static_pointer_cast<WorkState>(std::exchange(calls.comparison, nullptr));
    lock.unlock();
    context->driver().wait(*compared, kForever);
    lock.lock();
    if (!compared->failure()) calls.conclude();
  }
  if (!calls.trial.is_timed()) return {};
  return TimedCall{calls.trial.times(), calls.active, &context->clock()};
}

void CommunicatorState::TimedCall::end() const {
  times->add(candidate, std::chrono::duration<double>(clock->now() - begin).count());
}

void CommunicatorState::run_automatic(const CollectiveCall& call) {
  auto timed = advance_trial(call);
  std::shared_ptr<comm::Context> context;
  CallArguments arguments = prepare(call, context);
  if (!timed) return run(std::move(arguments), *context);
  timed->begin = timed->clock->now();
  run(std::move(arguments), *context);
  timed->end();
}

std::shared_ptr<WorkState> CommunicatorState::post_automatic(const CollectiveCall& call) {
  auto timed = advance_trial(call);
  std::shared_ptr<comm::Context> context;
  CallArguments arguments = prepare(call, context);
  if (timed) {
    timed->begin = timed->clock->now();
    make_work(arguments, *context);
    arguments.work->notify([timed] { timed->end(); });
  }
  return begin(std::move(arguments), context);
}

}  // namespace qccl::internal
