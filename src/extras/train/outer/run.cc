#include "extras/train/outer/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace qccl::train {
namespace {

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

OuterOptions complete(OuterOptions options) {
  options.is_weighted = options.is_weighted.value_or(options.every_time.has_value());
  return options;
}

}  // namespace

void fail(const Communicator& group, ErrorKind kind, const std::string& what) {
  throw Error({.kind = kind,
               .message = fmt::format("QCCL rank {}, group '{}': outer loop: {}", group.rank(), group.name(), what),
               .rank = group.rank()});
}

OuterRun::OuterRun(std::vector<OuterParameter> parameters, const OuterOptions& given)
    : options(complete(given)), model(std::move(parameters), options) {
  flight.sent.resize(model.largest());
  flight.received.resize(model.largest());
}

void OuterRun::count_step(double samples) {
  ++position.steps;
  for (OuterFragment& each : model.fragments()) each.samples += samples;
}

bool OuterRun::begins_round() const {
  const std::uint64_t next = position.steps + 1;
  if (!position.is_begun) return schedule.is_begin_due(next, position.rounds);
  return schedule.is_end_due(next) && schedule.is_begin_due(next, position.rounds + 1);
}

void OuterRun::begin_round(double rate, const Communicator& group) {
  journal.begin(group);
  OuterFragment& current = fragment();
  const auto own = std::span(flight.received).first(current.global.size());
  model.load_own(current, own);
  position.begun_rate = rate;
  model.take_sent(current, rate, own, flight.sent);
  note_delta();
  position.weight = *options.is_weighted || current.samples == 0 ? current.samples : 1;
  current.samples = 0;
  flight.feedback = {};
  position.is_begun = true;
  flight.is_posted = false;
  flight.posted_in.clear();
  position.begun_at = position.steps;
  schedule.wait_for_next();
}

void OuterRun::cancel_round() {
  fragment().samples += position.weight;  // not weighted, only zero differs from other numbers
  position.is_begun = false;
  flight.feedback = {};
  schedule.begin_in({});
}

void OuterRun::skip_round() {
  schedule.has_skipped = true;
  ++position.rounds;
}

bool OuterRun::has_posted_in(std::uint64_t group_number) const {
  return position.is_begun && std::ranges::find(flight.posted_in, group_number) != flight.posted_in.end();
}

void OuterRun::note_delta() {
  const OuterFragment& current = fragment();
  const bool is_averaging = model.is_averaging(position.begun_rate);
  double sum = 0;
  for (std::size_t i = 0; i < current.deltas; ++i) {
    const double delta = is_averaging ? current.global[i] - flight.sent[i] : flight.sent[i];
    sum += delta * delta;
  }
  flight.delta_norm = std::sqrt(sum);
}

void OuterRun::note_and_blend(const Communicator& group) {
  OuterFragment& current = fragment();
  OuterRound round{.round = position.rounds,
                   .fragment = schedule.fragment(),
                   .step = position.steps,
                   .delta_norm = flight.delta_norm};
  if (!flight.feedback.is_none() && !position.was_idle) {
    current.residual.write(flight.feedback.residual());
    const bool is_sum = *options.is_weighted && position.weight > 0;
    round.residual_norm = norm_of(flight.feedback.residual()) / (is_sum ? position.weight : 1);
  }
  unblended = schedule.fragment();
  ++position.rounds;
  schedule.has_skipped = schedule.is_loaded = false;
  position.is_begun = false;
  flight.feedback = {};
  journal.add(round, group);
  blend_last();
}

void OuterRun::blend_last() {
  if (!unblended) return;
  const OuterFragment& last = model.fragments()[*unblended];
  model.blend(last, schedule.is_finishing ? 0.0F : static_cast<float>(options.blend), flight.sent);
  unblended.reset();
}

}  // namespace qccl::train
