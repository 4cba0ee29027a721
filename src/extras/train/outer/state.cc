// Drives the rounds of an OuterLoop, and goes on after losses.
#include "extras/train/outer/state.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/digest/digest.h"
#include "qccl/outer_plan.h"

namespace qccl::train {
namespace {

bool is_loss(ErrorKind kind) {
  return kind == ErrorKind::peer_lost || kind == ErrorKind::deadline_exceeded || kind == ErrorKind::aborted ||
         kind == ErrorKind::corrupt_data;
}

}  // namespace

OuterLoop::State::State(Communicator group, std::vector<OuterParameter> parameters, const OuterOptions& options)
    : given_(std::move(group)), group_(given_.dup()), run_(std::move(parameters), options) {
  run_.journal.last_end = run_.now();
  run_.journal.enter(run_.journal.last_end);
  run_.journal.begin(group_);
  run_.schedule.begin_anew();
  settle();
  advance();  // as the others in regroup(), who wait for this rank in a round that they repeat
  run_.journal.leave(run_.now());
}

OuterLoop::State::~State() {
  try {
    run_.flight.wait();
  } catch (const Error&) {
    // The group had failed, and later calls throw that failure again.
  }
}

void OuterLoop::State::step(double samples) {
  if (!(samples >= 0) || std::isinf(samples)) {
    fail(group_, ErrorKind::invalid_argument, fmt::format("a step of {} samples: give a number from 0", samples));
  }
  run_.journal.enter(run_.now());
  run_.count_step(samples);
  drive();
  run_.journal.leave(run_.now());
}

void OuterLoop::State::finish() {
  run_.journal.enter(run_.now());
  run_.schedule.is_finishing = true;
  drive();
  run_.journal.leave(run_.now());
}

void OuterLoop::State::regroup(const Communicator& group) {
  run_.journal.enter(run_.now());
  drive(group);
  run_.journal.leave(run_.now());
}

void OuterLoop::State::drive(std::optional<Communicator> next) {
  is_lost_ = false;
  for (;;) {
    std::optional<Error> loss;
    try {
      if (next) go_over_to(*next);
      return advance();
    } catch (const Error& error) {
      is_lost_ = is_loss(error.kind());
      if (!run_.options.go_on || !is_lost_) throw;
      loss = error;
    }
    leave_calls();
    next = group_after(*loss);
    is_lost_ = false;
  }
}

Communicator OuterLoop::State::group_after(const Error& loss) {
  const OuterOptions& options = run_.options;
  return options.replace_group ? options.replace_group(loss) : given_.shrink(options.shrink);
}

void OuterLoop::State::go_over_to(const Communicator& group) {
  given_ = group;
  const Communicator next = given_.dup();  // from here on no rank waits in step()
  leave_calls();
  run_.journal.move(group_, next);
  group_ = next;
  settle();
}

// Ends the round if its calls ended well after all, or else leaves it to be posted in another group, where all ranks
// learn of different rates.
void OuterLoop::State::leave_calls() {
  if (!run_.flight.works.empty()) group_.abort("the outer loop goes on in another group");
  const bool was_posted = run_.flight.is_posted;
  try {
    run_.flight.wait();
  } catch (const Error&) {
    return;
  }
  if (!was_posted) return;
  const OuterControl& control = run_.flight.control;
  if (control.has_equal_models(group_.size()) && control.has_equal_rates(group_.size())) return end_round();
  run_.flight.feedback = {};
}

// ---- Rounds

void OuterLoop::State::advance() {
  run_.blend_last();
  for (;;) {
    if (run_.position.is_begun) {
      if (!run_.flight.is_posted) post();
      if (!run_.schedule.is_end_due(run_.position.steps)) return;
      const TimePoint begin = run_.now();
      run_.flight.wait();
      // What a rank waits for others belongs to the time between its rounds: ranks of any speed then begin together.
      run_.schedule.next_begin += run_.now() - begin;
      end_round();
    }
    if (run_.schedule.is_finishing && run_.position.rounds_in_agreement >= run_.options.fragments) {
      run_.schedule.end_finish();
    }
    if (!run_.schedule.is_begin_due(run_.position.steps, run_.position.rounds)) return;
    run_.begin_round(run_.model.optimizer().learning_rate(), group_);
  }
}

// In a group that has none of the round's calls yet, or the first ones where the next one threw.
void OuterLoop::State::post() {
  OuterFragment& fragment = run_.fragment();
  OuterFlight& flight = run_.flight;
  const bool has_feedback = fragment.residual.size() > 0;
  if (has_feedback && flight.feedback.is_none()) {  // before the first call: it may lack memory
    flight.feedback = ErrorFeedback(fragment.deltas, run_.position.rounds);
    fragment.residual.read(flight.feedback.residual(), static_cast<float>(run_.options.error_decay));
  }
  if (flight.works.empty()) {
    flight.posted_in.push_back(group_number_);
    // The call with the deltas may have ended well in another group where another call of the round failed.
    if (!flight.feedback.is_none()) flight.feedback.settle(run_.position.rounds);
  }
  CallOptions options{
      .op = *run_.options.is_weighted ? ReduceOp::premul_sum : ReduceOp::avg,
      .premul_factor = run_.position.weight,
      .compression = none(),
      .log_name = fmt::format("outer round {} fragment {}", run_.position.rounds, run_.schedule.fragment())};
  flight.works.reserve(3);
  if (flight.works.empty()) {
    flight.control.set({.weight = run_.position.weight,
                        .may_end = run_.schedule.is_finishing && !run_.schedule.has_skipped,
                        .is_loaded = run_.schedule.is_loaded,
                        .rate = run_.position.begun_rate,
                        .model = digest(run_.position.rounds, run_.position.lineage.now)});
    flight.works.push_back(group_.all_reduce_async(std::span(flight.control.numbers()), {.compression = none()}));
  }
  if (run_.schedule.is_loaded) compare_loaded();
  std::size_t calls = 1;
  const auto send = [&](std::size_t first, std::size_t count) {
    if (count == 0 || calls++ < flight.works.size()) return;
    flight.works.push_back(
        group_.all_reduce_async(&flight.sent[first], &flight.received[first], count, DataType::float32, options));
  };
  const std::size_t deltas = run_.model.is_averaging(run_.position.begun_rate) ? 0 : fragment.deltas;
  send(deltas, fragment.global.size() - deltas);
  options.compression = run_.options.compression;
  options.algorithm = round_algorithm(run_.options.compression);
  if (has_feedback) options.error_feedback = flight.feedback;
  send(0, deltas);
  flight.is_posted = true;
}

// Before calls whose counts differ where ranks have loaded states of different rounds. Ranks that have not loaded make
// these calls.
void OuterLoop::State::compare_loaded() {
  run_.flight.works.front().wait();
  const OuterControl& sums = run_.flight.control;
  if (sums.has_equal_models(group_.size()) || !sums.all_are_loaded(group_.size())) return;
  run_.flight.works.clear();
  require_equal_ranks();
}

// All ranks throw alike.
void OuterLoop::State::require_equal_ranks() {
  std::string what;
  if (!run_.flight.control.has_equal_models(group_.size())) {
    what = fmt::format(
        "the ranks have different global models; this rank has ended {} rounds; load states that all "
        "ranks have saved after the same round",
        run_.position.rounds);
  } else if (!run_.flight.control.has_equal_rates(group_.size())) {
    what = fmt::format(
        "the ranks' outer optimizers have different rates; this rank's is {}; with one rate the next "
        "call begins the round again",
        run_.position.begun_rate);
  } else {
    return;
  }
  run_.cancel_round();
  fail(group_, ErrorKind::invalid_argument, what);
}

void OuterLoop::State::end_round() {
  require_equal_ranks();
  OuterFragment& fragment = run_.fragment();
  const auto average = std::span(run_.flight.received).first(fragment.global.size());
  run_.position.was_idle = run_.flight.control.weight() == 0;
  if (*run_.options.is_weighted && !run_.position.was_idle) {
    const auto share = static_cast<float>(1 / run_.flight.control.weight());
    for (float& x : average) x *= share;
  }
  if (!run_.position.was_idle) run_.model.step_global(run_.schedule.fragment(), run_.position.begun_rate, average);
  const bool is_agreed = run_.flight.control.all_may_end(group_.size());
  run_.position.rounds_in_agreement = is_agreed ? run_.position.rounds_in_agreement + 1 : 0;
  run_.position.lineage.add(group_number_);
  run_.note_and_blend(group_);
  run_.journal.end(run_.now(), group_);
}

}  // namespace qccl::train
