// The part of CommunicatorState that tries what automatic compression may be: see comm/auto/auto_trial.h.
//
// Calls in groups and lists take what is the fastest so far and do not count. The ranks' comparison is an all_reduce of
// the group like any other: it is posted with one call and waited for before a later one.
#include "codec/registry.h"
#include "comm/communicator_state.h"

namespace qccl::internal {

using comm::AutoTable;
using comm::AutoTrial;
using engine::Post;

bool CommunicatorState::is_automatic(const Request& request) const {
  const auto& asked = request.options.compression;
  return asked ? qccl::is_automatic(*asked) : defaults_to_automatic_.load(std::memory_order_relaxed);
}

// Of this rank's times the ranks take the shortest: that of the rank which came last and waited for nobody.
Post CommunicatorState::comparison(AutoTable::Class& calls, comm::Context& context) {
  calls.times.resize(calls.candidates.size());
  for (std::size_t i = 0; i < calls.times.size(); ++i) calls.times[i] = calls.trial.times()->of(i);
  const CallOptions options{.op = calls.from_slowest ? ReduceOp::max : ReduceOp::min,
                            .compression = none(),
                            .algorithm = Algorithm::one_shot};
  Post post;
  post.group = id_;
  post.call = comm::make_call(Collective::all_reduce, calls.times.size(), DataType::float64, size(), options, defaults_)
                  .take_or_throw();
  post.input = post.output = reinterpret_cast<std::byte*>(calls.times.data());
  post.timeout = timeout_;
  post.work = context.make_work();
  post.is_logged = false;
  post.awaited = true;  // the calls that follow drive it
  calls.comparison = post.work;
  return post;
}

std::optional<CommunicatorState::TimedCall> CommunicatorState::advance_trial(const Request& request) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<comm::Context> context = usable_context();
  if (context->recorder().work() != nullptr) return {};
  const std::uint64_t count = request.counts ? comm::Extent(*request.counts).count : request.count;
  const bool differs = request.collective == Collective::all_to_all && request.counts;
  auto chosen = comm::choose_compression(request.collective, count, request.type, size(), request.options, defaults_);
  if (differs || !chosen.ok() || !qccl::is_automatic(*chosen)) return {};
  AutoTable::Class& calls = automatic_.of({request.collective, count, request.type, *chosen});
  const AutoTrial::Todo todo = calls.next();
  if (todo == AutoTrial::Todo::compare) {
    Post compare = comparison(calls, *context);
    lock.unlock();
    context->driver().post(std::move(compare));
    lock.lock();
  }
  if (todo == AutoTrial::Todo::conclude) {
    const auto compared = std::static_pointer_cast<WorkState>(std::exchange(calls.comparison, nullptr));
    lock.unlock();
    context->driver().wait(*compared, kForever);
    lock.lock();
    if (!compared->failure()) calls.conclude();
  }
  if (!calls.trial.is_timed()) return {};
  return TimedCall{calls.trial.times(), calls.active};
}

Post CommunicatorState::prepare_timed(const Request& request, std::shared_ptr<comm::Context>& context) {
  const auto timed = advance_trial(request);
  Post post = prepare(request, context);
  if (timed) {
    const Clock& clock = context->clock();
    post.work->notify([timed, &clock, begin = clock.now()] {
      timed->times->add(timed->candidate, std::chrono::duration<double>(clock.now() - begin).count());
    });
  }
  return post;
}

}  // namespace qccl::internal
