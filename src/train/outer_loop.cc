// The public OuterLoop; the rounds of its State.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

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

double seconds_of(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

OuterParameter OuterParameter::of(std::string name, std::span<float> values) {
  return {.name = std::move(name),
          .count = values.size(),
          .load = [values](std::span<float> to) { std::ranges::copy(values, to.begin()); },
          .store = [values](std::span<const float> from) { std::ranges::copy(from, values.begin()); }};
}

// ---- Schedule, flight, journal

void OuterSchedule::begin_anew() {
  origin_step = steps;
  origin_round = rounds;
  wait_for_next();
}

void OuterSchedule::wait_for_next() {
  if (options.every_time) next_begin = clock.now() + *options.every_time / static_cast<int>(options.fragments);
}

bool OuterSchedule::is_begin_due(std::uint64_t at_step) const {
  if (is_finishing) return true;
  if (options.every_time) return clock.now() >= next_begin;
  return at_step >= origin_step + (rounds - origin_round + 1) * options.every / options.fragments;
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

void OuterJournal::begin(const Communicator& group) { bytes_before = bytes_sent(group); }

void OuterJournal::add(OuterRound round, const Communicator& group) {
  round.ranks = group.size();
  round.bytes = bytes_sent(group) - bytes_before;
  if (rounds.size() == kMostHistory) rounds.erase(rounds.begin());
  rounds.push_back(round);
}

void OuterJournal::end(TimePoint now, const Communicator& group) {
  OuterRound& last = rounds.back();
  last.seconds_waited = seconds_of(waited);
  last.seconds = seconds_of(now - last_end);
  last.ended_ns = now.time_since_epoch().count();
  group.log().add(last);
  last_end = now;
  waited = {};
}

// ---- State

OuterLoop::State::State(Communicator group, std::vector<OuterParameter> parameters, const OuterOptions& options)
    : group_(group.dup()), options_(options), model_(std::move(parameters), options_) {
  flight_.sent.resize(model_.largest());
  flight_.received.resize(model_.largest());
  journal_.last_end = schedule_.clock.now();
  schedule_.begin_anew();
  settle();
}

OuterLoop::State::~State() {
  try {
    flight_.wait();
  } catch (const Error&) {
    // The group had failed, and later calls throw that failure again.
  }
}

void OuterLoop::State::count_step(double samples) {
  ++schedule_.steps;
  for (OuterFragment& fragment : model_.fragments()) fragment.samples += samples;
}

void OuterLoop::State::drive() {
  for (bool is_lost = false, is_shrinking = false;;) {
    try {
      if (is_lost) {
        is_shrinking = true;
        group_ = group_.shrink(options_.shrink);
        is_shrinking = false;
        settle();
        is_lost = false;
      }
      return advance();
    } catch (const Error& error) {
      const bool is_loss = error.kind() == ErrorKind::peer_lost || error.kind() == ErrorKind::deadline_exceeded ||
                           error.kind() == ErrorKind::aborted || error.kind() == ErrorKind::corrupt_data;
      if (!options_.go_on || is_shrinking || !is_loss) throw;
      is_lost = true;
      leave_calls();
    }
  }
}

void OuterLoop::State::regroup(Communicator group) {
  Communicator next = group.dup();  // from here on no rank waits in step()
  if (!flight_.works.empty()) group_.abort("the outer loop goes on in another group");
  leave_calls();
  group_ = next;
  settle();
  drive();
}

// Ends the round if its calls ended well after all, or else leaves it to be posted in another group.
void OuterLoop::State::leave_calls() {
  const bool was_posted = flight_.is_posted;
  try {
    wait();
  } catch (const Error&) {
    return;
  }
  if (was_posted) end_round();
}

// ---- Rounds

void OuterLoop::State::advance() {
  for (;;) {
    if (flight_.is_begun) {
      if (!flight_.is_posted) post();
      if (!schedule_.is_end_due()) return;
      wait();
      end_round();
    }
    if (schedule_.is_finishing && schedule_.rounds_in_agreement >= options_.fragments) {
      schedule_.is_finishing = false;
      schedule_.rounds_in_agreement = 0;
      schedule_.begin_anew();
    }
    if (!schedule_.is_begin_due(schedule_.steps)) return;
    begin_round();
  }
}

void OuterLoop::State::begin_round() {
  OuterFragment& fragment = model_.fragments()[schedule_.fragment()];
  const auto own = std::span(flight_.received).first(fragment.global.size());
  model_.load_own(fragment, own);
  for (std::size_t i = 0; i < fragment.deltas; ++i) flight_.sent[i] = fragment.global[i] - own[i];
  std::ranges::copy(own.subspan(fragment.deltas), std::span(flight_.sent).subspan(fragment.deltas).begin());
  flight_.weight = options_.is_weighted || fragment.samples == 0 ? fragment.samples : 1;
  fragment.samples = 0;
  flight_.feedback = {};
  flight_.is_begun = true;
  flight_.is_posted = false;
  schedule_.begun_at = schedule_.steps;
  schedule_.wait_for_next();
}

// In a group that has none of the round's calls yet.
void OuterLoop::State::post() {
  OuterFragment& fragment = model_.fragments()[schedule_.fragment()];
  const TimePoint begin = schedule_.clock.now();
  journal_.begin(group_);
  flight_.control = {flight_.weight, schedule_.is_finishing ? 1.0 : 0.0};
  flight_.works.push_back(group_.all_reduce_async(std::span(flight_.control), {.compression = none()}));
  CallOptions options{.op = options_.is_weighted ? ReduceOp::premul_sum : ReduceOp::avg,
                      .premul_factor = flight_.weight,
                      .compression = none(),
                      .log_name = fmt::format("outer round {} fragment {}", schedule_.rounds, schedule_.fragment())};
  const auto send = [&](std::size_t first, std::size_t count) {
    if (count == 0) return;
    flight_.works.push_back(
        group_.all_reduce_async(&flight_.sent[first], &flight_.received[first], count, DataType::float32, options));
  };
  send(fragment.deltas, fragment.global.size() - fragment.deltas);
  options.compression = options_.compression;
  if (fragment.residual.size() > 0) {
    if (flight_.feedback.is_none()) {
      flight_.feedback = ErrorFeedback(fragment.deltas, schedule_.rounds);
      fragment.residual.read(flight_.feedback.residual(), static_cast<float>(options_.error_decay));
    }
    options.error_feedback = flight_.feedback;
  }
  send(0, fragment.deltas);
  flight_.is_posted = true;
  journal_.waited += schedule_.clock.now() - begin;
}

void OuterLoop::State::wait() {
  const TimePoint begin = schedule_.clock.now();
  flight_.wait();
  journal_.waited += schedule_.clock.now() - begin;
}

void OuterLoop::State::end_round() {
  OuterFragment& fragment = model_.fragments()[schedule_.fragment()];
  const TimePoint begin = schedule_.clock.now();
  const auto average = std::span(flight_.received).first(fragment.global.size());
  flight_.was_idle = flight_.control[0] == 0;
  if (options_.is_weighted && !flight_.was_idle) {
    const auto share = static_cast<float>(1 / flight_.control[0]);
    for (float& x : average) x *= share;
  }
  if (!flight_.was_idle) model_.step_global(schedule_.fragment(), average);
  const bool is_agreed = flight_.control[1] == group_.size();
  schedule_.rounds_in_agreement = is_agreed ? schedule_.rounds_in_agreement + 1 : 0;
  note_and_blend();
  journal_.waited += schedule_.clock.now() - begin;
  journal_.end(schedule_.clock.now(), group_);
}

// The end of a round whose global values are here.
void OuterLoop::State::note_and_blend() {
  OuterFragment& fragment = model_.fragments()[schedule_.fragment()];
  OuterRound round{.round = schedule_.rounds,
                   .fragment = schedule_.fragment(),
                   .step = schedule_.steps,
                   .delta_norm = norm_of(std::span(flight_.sent).first(fragment.deltas))};
  if (!flight_.feedback.is_none() && !flight_.was_idle) {
    fragment.residual.write(flight_.feedback.residual());
    round.residual_norm = norm_of(flight_.feedback.residual());
  }
  journal_.add(round, group_);
  // The delta is no longer needed.
  model_.blend(fragment, schedule_.is_finishing ? 0.0F : static_cast<float>(options_.blend), flight_.sent);
  ++schedule_.rounds;
  flight_.is_begun = false;
  flight_.feedback = {};
}

// ---- OuterLoop

OuterLoop::OuterLoop(Communicator group, std::vector<OuterParameter> parameters, const OuterOptions& options)
    : state_(std::make_unique<State>(std::move(group), std::move(parameters), options)) {}
OuterLoop::~OuterLoop() = default;
OuterLoop::OuterLoop(OuterLoop&&) noexcept = default;

void OuterLoop::step(double samples) {
  state_->count_step(samples);
  state_->drive();
}
void OuterLoop::finish() {
  state_->begin_finish();
  state_->drive();
}
void OuterLoop::regroup(Communicator group) { state_->regroup(std::move(group)); }
const Communicator& OuterLoop::group() const { return state_->group(); }
std::size_t OuterLoop::fragments() const { return state_->model().fragments().size(); }
const std::vector<std::size_t>& OuterLoop::members(std::size_t fragment) const {
  return state_->model().fragments().at(fragment).members;
}
std::span<const float> OuterLoop::global(std::size_t fragment) const {
  return state_->model().fragments().at(fragment).global;
}
std::vector<float> OuterLoop::residual(std::size_t fragment) const {
  const Residual& own = state_->model().fragments().at(fragment).residual;
  std::vector<float> values(own.size());
  own.read(values, 1);
  return values;
}
bool OuterLoop::begins_round() const { return state_->schedule().is_begin_due(state_->schedule().steps + 1); }
std::uint64_t OuterLoop::rounds() const { return state_->schedule().rounds; }
std::uint64_t OuterLoop::steps() const { return state_->schedule().steps; }
const std::vector<OuterRound>& OuterLoop::history() const { return state_->history(); }
std::vector<std::byte> OuterLoop::save() const { return state_->save(); }
void OuterLoop::load(std::span<const std::byte> saved, bool is_own) { state_->load(saved, is_own); }

}  // namespace qccl::train
