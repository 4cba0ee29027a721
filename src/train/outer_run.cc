// What a rank has of an OuterLoop: when rounds begin and end, the round in flight, what rounds cost.
#include <algorithm>
#include <cmath>

#include "base/digest/digest.h"
#include "train/outer_state.h"

namespace qccl::train {
namespace {

constexpr std::size_t kMostHistory = 10'000;

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

std::uint64_t bytes_sent(const Communicator& group) {
  const Traffic traffic = group.traffic();
  return traffic.payload_bytes_sent + traffic.header_bytes_sent + traffic.shared_bytes_sent;
}

OuterOptions complete(OuterOptions options) {
  options.is_weighted = options.is_weighted.value_or(options.every_time.has_value());
  return options;
}

double seconds_of(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

// ---- Schedule, flight, journal

void OuterSchedule::begin_anew() {
  origin_step = steps;
  origin_round = rounds;
  wait_for_next();
}

void OuterSchedule::end_finish() {
  is_finishing = false;
  rounds_in_agreement = 0;
  ++finishes;
  begin_anew();
}

void OuterSchedule::wait_for_next() {
  if (options.every_time) next_begin = clock.now() + *options.every_time / static_cast<int>(options.fragments);
}

bool OuterSchedule::is_begin_due(std::uint64_t at_step, std::uint64_t ended) const {
  if (is_finishing) return true;
  if (options.every_time) return clock.now() >= next_begin;
  return at_step >= origin_step + (ended - origin_round + 1) * options.every / options.fragments;
}

void OuterLineage::add(std::uint64_t group_number) {
  before_last_round = now;
  now = digest(group_number, now);
  last_group = group_number;
}

void OuterFlight::wait() {
  std::optional<Error> failure;
  for (const Work& work : works) {
    try {
      work.wait();
    } catch (const Error& error) {
      if (!failure) failure = error;
    }
  }
  works.clear();
  is_posted = false;
  if (failure) throw Error(*failure);
}

void OuterFlight::redo_feedback(std::uint64_t counter, std::uint64_t in_group) {
  if (feedback.is_none()) return;
  if (posted_in.back() == in_group) return feedback.settle(counter);
  // It was posted again since. What compression had left out in that group is not known any more.
  std::ranges::fill(feedback.residual(), 0.0F);
}

void OuterJournal::leave(TimePoint now) {
  waited += now - *entered;
  entered.reset();
}

void OuterJournal::move(const Communicator& from, const Communicator& to) {
  bytes_before = bytes_sent(to) - (bytes_sent(from) - bytes_before);
}

void OuterJournal::begin(const Communicator& group) { bytes_before = bytes_sent(group); }

void OuterJournal::add(OuterRound round, const Communicator& group) {
  round.ranks = group.size();
  round.bytes = bytes_sent(group) - bytes_before;
  if (rounds.size() == kMostHistory) rounds.erase(rounds.begin());
  rounds.push_back(round);
}

void OuterJournal::end(TimePoint now, const Communicator& group) {
  OuterRound& last = rounds.back();
  last.seconds_waited = seconds_of(waited + (now - entered.value_or(now)));
  last.seconds = seconds_of(now - last_end);
  last.ended_ns = now.time_since_epoch().count();
  group.log().add(last);
  last_end = now;
  waited = {};
  entered = now;
}

// ---- OuterRun

OuterRun::OuterRun(std::vector<OuterParameter> parameters, const OuterOptions& given)
    : options(complete(given)), model(std::move(parameters), options) {
  flight.sent.resize(model.largest());
  flight.received.resize(model.largest());
}

void OuterRun::count_step(double samples) {
  ++schedule.steps;
  for (OuterFragment& each : model.fragments()) each.samples += samples;
}

bool OuterRun::begins_round() const {
  const std::uint64_t next = schedule.steps + 1;
  if (!flight.is_begun) return schedule.is_begin_due(next, schedule.rounds);
  return schedule.is_end_due(next) && schedule.is_begin_due(next, schedule.rounds + 1);
}

void OuterRun::begin_round(double rate, const Communicator& group) {
  journal.begin(group);
  OuterFragment& current = fragment();
  const auto own = std::span(flight.received).first(current.global.size());
  model.load_own(current, own);
  flight.rate = rate;
  model.take_sent(current, rate, own, flight.sent);
  note_delta();
  flight.weight = *options.is_weighted || current.samples == 0 ? current.samples : 1;
  current.samples = 0;
  flight.feedback = {};
  flight.is_begun = true;
  flight.is_posted = false;
  flight.posted_in.clear();
  schedule.begun_at = schedule.steps;
  schedule.wait_for_next();
}

void OuterRun::cancel_round() {
  fragment().samples += flight.weight;  // not weighted, only zero differs from other numbers
  flight.is_begun = false;
  flight.feedback = {};
  schedule.begin_in({});
}

void OuterRun::skip_round() {
  schedule.has_skipped = true;
  ++schedule.rounds;
}

bool OuterRun::has_posted_in(std::uint64_t group_number) const {
  return flight.is_begun && std::ranges::find(flight.posted_in, group_number) != flight.posted_in.end();
}

void OuterRun::note_delta() {
  const OuterFragment& current = fragment();
  const bool is_averaging = model.is_averaging(flight.rate);
  double sum = 0;
  for (std::size_t i = 0; i < current.deltas; ++i) {
    const double delta = is_averaging ? current.global[i] - flight.sent[i] : flight.sent[i];
    sum += delta * delta;
  }
  flight.delta_norm = std::sqrt(sum);
}

void OuterRun::note_and_blend(const Communicator& group) {
  OuterFragment& current = fragment();
  OuterRound round{.round = schedule.rounds,
                   .fragment = schedule.fragment(),
                   .step = schedule.steps,
                   .delta_norm = flight.delta_norm};
  if (!flight.feedback.is_none() && !flight.was_idle) {
    current.residual.write(flight.feedback.residual());
    const bool is_sum = *options.is_weighted && flight.weight > 0;
    round.residual_norm = norm_of(flight.feedback.residual()) / (is_sum ? flight.weight : 1);
  }
  unblended = schedule.fragment();
  ++schedule.rounds;
  schedule.has_skipped = schedule.is_loaded = false;
  flight.is_begun = false;
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
