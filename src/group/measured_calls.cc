#include "group/measured_calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/log.h"
#include "engine/progress/progress_driver.h"
#include "job/context.h"
#include "job/job_groups.h"

namespace qccl::comm {

namespace {

// "; lines of 0.5 to 1 Gbit/s: owners' shares of [114 114 0 114] %, where 100 % are equal"; empty if they are equal.
std::string shares_text(const AgreedLines& lines) {
  constexpr std::size_t kNamed = 64;
  if (lines.shares.empty()) return {};
  double slowest = 0;
  double fastest = 0;
  for (const double rate : lines.by_host) {
    if (rate > 0) slowest = slowest == 0 ? rate : std::min(slowest, rate);
    fastest = std::max(fastest, rate);
  }
  const auto named = std::span(lines.shares).first(std::min(lines.shares.size(), kNamed));
  return fmt::format("; lines of {:.3g} to {:.3g} Gbit/s: owners' shares of [{}{}] %, where 100 % are equal",
                     slowest * 8e-9, fastest * 8e-9, fmt::join(named, " "),
                     lines.shares.size() > named.size() ? " ..." : "");
}

}  // namespace

MeasuredCalls::MeasuredCalls(std::mutex& mutex, CallBuilder& builder, const GroupIdentity& group, Context& context,
                             const GroupAgreement& agreement)
    : mutex_(mutex), builder_(builder), group_(group) {
  const CostEnvironment& cost_environment = context.groups().cost_environment();
  const double round_trip = agreement.distance.round_trip;
  if (round_trip < plan::kDistantRoundTrip || cost_environment.rate_is_given) return;
  line_rate_.emplace(context.hosts_of(group.ranks), group.rank,
                     cost_environment.line_rate(round_trip) * plan::kTcpEfficiency);
}

std::optional<TimedCall> MeasuredCalls::begin(const CollectiveCall& call, Context& context) {
  if (context.call_batch().work() != nullptr || has_private_counts(call)) return {};
  Lock lock(mutex_);
  if (line_rate_) learn_line_rate(call, context, lock);
  return begin_timed(call, context, lock);
}

void MeasuredCalls::learn_line_rate(const CollectiveCall& call, Context& context, Lock& lock) {
  const auto step = line_rate_->next(total_count(call) * element_bytes(call.type));
  if (step == LineRate::Step::compare) {
    post(line_rate_->compare(context.groups().measured_line()), ReduceOp::sum, context, lock);
  }
  if (step != LineRate::Step::conclude || !await(line_rate_->comparison(), context, lock)) return;
  const auto lines = line_rate_->conclude();
  if (!lines) return;
  const std::uint64_t window = builder_.use_lines(*lines);
  log(LogLevel::info, fmt::format("rank {}: group '{}': a line carries {:.3g} Gbit/s{}: a window of {} bytes{}",
                                  group_.world_rank(), group_.name, lines->rate * 8e-9,
                                  lines->loses ? " and loses packets" : "", window, shares_text(*lines)));
}

std::optional<TimedCall> MeasuredCalls::begin_timed(const CollectiveCall& call, Context& context, Lock& lock) {
  ClassTrial* const calls = builder_.trial_of(call);
  if (calls == nullptr) return {};
  const auto step = calls->trial.next();
  if (step == CompressionTrial::Step::compare) post(calls->compare(), calls->comparison_op(), context, lock);
  if (step == CompressionTrial::Step::conclude && await(calls->comparison, context, lock)) {
    calls->trial.conclude(calls->comparison.values);
  }
  if (!calls->trial.is_timed()) return {};
  return TimedCall(calls->trial.times(), calls->trial.candidate(), context.clock());
}

void MeasuredCalls::post(Comparison& comparison, ReduceOp op, Context& context, Lock& lock) {
  const CallOptions options{.op = op, .compression = none(), .algorithm = Algorithm::one_shot};
  std::vector<double>& values = comparison.values;
  engine::CallArguments arguments = builder_.build(
      CollectiveCall{Collective::all_reduce, values.data(), values.data(), values.size(), DataType::float64, options});
  arguments.is_logged = false;
  arguments.awaited = true;  // the calls that follow drive it
  arguments.work = internal::make_work();
  comparison.work = arguments.work;
  lock.unlock();
  context.driver().post(std::move(arguments));
  lock.lock();
}

bool MeasuredCalls::await(Comparison& comparison, Context& context, Lock& lock) {
  const auto compared = std::exchange(comparison.work, nullptr);
  lock.unlock();
  context.driver().wait(*compared, kForever);
  lock.lock();
  return !compared->failure();
}

}  // namespace qccl::comm
