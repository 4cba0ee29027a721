// OuterLoop: ranks of a new group agree on the round, and those that lack something take it over.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "train/outer_state.h"

namespace qccl::train {
namespace {

struct Standing {
  std::uint64_t settings = 0;  // a digest, equal on all ranks
  std::uint64_t steps = 0, origin_step = 0, rounds = 0;
  std::uint64_t lacks_state = 0;
  std::uint64_t last_was_idle = 0;
  std::uint64_t rounds_in_agreement = 0;
  std::uint64_t finishes = 0;
  OuterLineage lineage{};
  double rate = 0;
  std::uint64_t is_begun = 0, begun_at = 0;
  double rate_of_flight = 0;
  std::int64_t next_begin_in = 0;  // nanoseconds, with every_time
  std::uint64_t group_number = 0;  // rank 0's becomes the group's

  bool is_level_with(const Standing& best) const {
    return lacks_state == 0 && rounds == best.rounds && lineage.now == best.lineage.now;
  }
  bool lacks_one_of(const Standing& best) const {
    return lacks_state == 0 && rounds + 1 == best.rounds && lineage.now == best.lineage.before_last_round;
  }
};

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

void require_equal_settings(const std::vector<Standing>& standings, const Communicator& group) {
  for (std::size_t rank = 0; rank < standings.size(); ++rank) {
    if (standings[rank].settings == standings[0].settings) continue;
    fail(group, ErrorKind::invalid_argument,
         fmt::format("rank {} has other options, parameters (names, order, sizes) or another optimizer than rank 0",
                     rank));
  }
}

// A rank that has the model and the most rounds. If such ranks have different models: the first of the largest party.
int source_of(const std::vector<Standing>& standings) {
  const auto merit = [&](const Standing& each) {
    const auto party =
        std::ranges::count(standings, each.lineage.now, [](const Standing& of) { return of.lineage.now; });
    return std::tuple(each.lacks_state == 0, each.rounds, party);
  };
  return static_cast<int>(std::ranges::max_element(standings, {}, merit) - standings.begin());
}

// Where a rank is that others take all over from.
struct Position {
  std::uint64_t steps, rounds, origin_step, origin_round;
  std::uint64_t rounds_in_agreement, finishes;
  OuterLineage lineage;
  std::uint64_t last_was_idle, is_begun, begun_at;
  std::int64_t next_begin_in;  // nanoseconds, with every_time
  double rate_of_flight, rate;
};

}  // namespace

// Collective over the group, which has none of this loop's calls in flight.
void OuterLoop::State::settle() {
  std::vector<Standing> standings(static_cast<std::size_t>(group_.size()));
  group_.all_gather(std::vector{Standing{.settings = run_.model.settings(),
                                         .steps = run_.schedule.steps,
                                         .origin_step = run_.schedule.origin_step,
                                         .rounds = run_.schedule.rounds,
                                         .lacks_state = lacks_state_ ? 1u : 0u,
                                         .last_was_idle = run_.flight.was_idle ? 1u : 0u,
                                         .rounds_in_agreement = run_.schedule.rounds_in_agreement,
                                         .finishes = run_.schedule.finishes,
                                         .lineage = run_.lineage,
                                         .rate = run_.model.optimizer().learning_rate(),
                                         .is_begun = run_.flight.is_begun ? 1u : 0u,
                                         .begun_at = run_.schedule.begun_at,
                                         .rate_of_flight = run_.flight.rate,
                                         .next_begin_in = (run_.schedule.next_begin - run_.now()).count(),
                                         .group_number = random_number()}},
                    standings);
  group_number_ = standings[0].group_number;
  require_equal_settings(standings, group_);
  const int source = source_of(standings);
  const Standing& best = standings[static_cast<std::size_t>(source)];
  // By rank: whether the one round that it lacks had its delta.
  std::vector<std::uint64_t> took_part(standings.size());
  if (std::ranges::any_of(standings, [&](const Standing& each) { return each.lacks_one_of(best); })) {
    group_.all_gather(std::vector{std::uint64_t{run_.has_posted_in(best.lineage.last_group)}}, took_part);
  }
  OuterHandover joining{source, {}};
  OuterHandover catching_up{source, {}};
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Standing& each = standings[static_cast<std::size_t>(rank)];
    if (rank == source || each.is_level_with(best)) continue;
    // A rank without whose training the others have ended finish() begins its next rounds in other steps than they.
    const bool catches_up =
        each.lacks_one_of(best) && (took_part[static_cast<std::size_t>(rank)] != 0 || each.finishes == best.finishes);
    (catches_up ? catching_up : joining).takers.push_back(rank);
  }
  if (group_.rank() == source && lacks_state_) {
    forget_training();
    run_.lineage.begin(group_number_);
  }
  if (!joining.takers.empty()) take_over_all(joining);
  if (catching_up.takers.empty()) return;
  const bool is_taker = catching_up.is_taker(group_.rank());
  const bool skips = is_taker && took_part[static_cast<std::size_t>(group_.rank())] == 0;
  if (skips && run_.flight.is_begun) run_.cancel_round();
  take_over((best.rounds - 1) % run_.options.fragments, catching_up, skips);
  if (!is_taker) return;
  run_.flight.was_idle = best.last_was_idle != 0;
  run_.lineage = best.lineage;
  if (skips) {
    run_.skip_round();
    OuterSchedule& schedule = run_.schedule;
    const auto in_own_steps = [&](std::uint64_t step) { return schedule.origin_step + step - best.origin_step; };
    if (!run_.options.every_time) schedule.steps = std::max(schedule.steps, in_own_steps(best.steps));
    run_.model.optimizer().set_learning_rate(best.rate);
    if (best.is_begun != 0) {
      run_.begin_round(best.rate_of_flight, group_);
      if (!run_.options.every_time) schedule.begun_at = in_own_steps(best.begun_at);
    }
    schedule.begin_in(Nanoseconds(best.next_begin_in));
  } else {
    end_missed_round();
  }
  run_.schedule.rounds_in_agreement = best.rounds_in_agreement;
  // The source has left finish() after that round.
  if (run_.schedule.is_finishing && run_.schedule.finishes < best.finishes) run_.schedule.end_finish();
}

// An interrupted take-over may have left values of other ranks. What this rank has trained is no difference to them.
void OuterLoop::State::forget_training() {
  run_.flight.is_begun = false;
  run_.flight.feedback = {};
  run_.forget_training();
  lacks_state_ = false;
}

// To one taker as a message, so that the other ranks receive nothing that they have. Otherwise by broadcasts of parts,
// each twice as large as the last: from the first ones the group learns the rate of a slow line, and with it the best
// algorithm for the others.
void OuterLoop::State::hand_over(std::span<std::byte> data, const OuterHandover& handover) {
  constexpr std::size_t kFirstPart = std::size_t{1} << 20;
  if (data.empty()) return;
  if (handover.takers.size() > 1 || group_.size() == 2) {
    for (std::size_t part = kFirstPart; !data.empty(); part *= 2) {
      const auto next = data.first(std::min(part, data.size()));
      group_.broadcast(next.data(), next.size(), DataType::uint8, {.root = handover.source, .compression = none()});
      data = data.subspan(next.size());
    }
  } else if (group_.rank() == handover.source) {
    group_.send(data.data(), data.size(), DataType::uint8, handover.takers[0]);
  } else if (handover.is_taker(group_.rank())) {
    group_.recv(data.data(), data.size(), DataType::uint8, handover.source);
  }
}

// The source's global values and optimizer of a fragment.
void OuterLoop::State::take_over(std::size_t index, const OuterHandover& handover, bool keeps_training) {
  OuterFragment& fragment = run_.model.fragments()[index];
  // A call that fails leaves its values unspecified. No call of a round is in flight.
  const auto values = std::span(run_.flight.received).first(fragment.global.size());
  std::ranges::copy(fragment.global, values.begin());
  hand_over(std::as_writable_bytes(values), handover);
  std::vector<std::byte> saved;
  if (group_.rank() == handover.source) saved = run_.model.optimizer().save(index);
  std::uint64_t size = saved.size();
  hand_over(std::as_writable_bytes(std::span(&size, 1)), handover);
  saved.resize(size);
  hand_over(saved, handover);
  if (!handover.is_taker(group_.rank())) return;
  run_.model.optimizer().load(index, saved);
  if (keeps_training) run_.model.follow(fragment, values, run_.flight.sent);
  std::ranges::copy(values, fragment.global.begin());
}

// To ranks that join, and to those that missed more than one round. A rank that is interrupted lacks the state still.
void OuterLoop::State::take_over_all(const OuterHandover& handover) {
  const bool is_taker = handover.is_taker(group_.rank());
  if (is_taker) lacks_state_ = true;
  Position there{.steps = run_.schedule.steps,
                 .rounds = run_.schedule.rounds,
                 .origin_step = run_.schedule.origin_step,
                 .origin_round = run_.schedule.origin_round,
                 .rounds_in_agreement = run_.schedule.rounds_in_agreement,
                 .finishes = run_.schedule.finishes,
                 .lineage = run_.lineage,
                 .last_was_idle = run_.flight.was_idle ? 1u : 0u,
                 .is_begun = run_.flight.is_begun ? 1u : 0u,
                 .begun_at = run_.schedule.begun_at,
                 .next_begin_in = (run_.schedule.next_begin - run_.now()).count(),
                 .rate_of_flight = run_.flight.rate,
                 .rate = run_.model.optimizer().learning_rate()};
  hand_over(std::as_writable_bytes(std::span(&there, 1)), handover);
  for (std::size_t i = 0; i < run_.model.fragments().size(); ++i) take_over(i, handover, false);
  if (!is_taker) return;
  run_.schedule.steps = there.steps;
  run_.schedule.rounds = there.rounds;
  run_.schedule.origin_step = there.origin_step;
  run_.schedule.origin_round = there.origin_round;
  run_.schedule.rounds_in_agreement = there.rounds_in_agreement;
  run_.schedule.is_finishing = run_.schedule.is_finishing && run_.schedule.finishes >= there.finishes;
  run_.schedule.finishes = there.finishes;
  run_.model.optimizer().set_learning_rate(there.rate);
  run_.flight.was_idle = there.last_was_idle != 0;
  run_.lineage = there.lineage;
  run_.schedule.has_skipped = false;
  forget_training();
  if (there.is_begun != 0) {
    run_.begin_round(there.rate_of_flight, group_);  // with the others: a rank that has not moved
    run_.schedule.begun_at = there.begun_at;
  }
  run_.schedule.begin_in(Nanoseconds(there.next_begin_in));
}

// The round ended on another rank, whose global values are here: the rest of end_round().
void OuterLoop::State::end_missed_round() {
  run_.flight.redo_feedback(run_.schedule.rounds + 1, run_.lineage.last_group);
  run_.note_and_blend(group_);
  run_.journal.end(run_.now(), group_);
}

}  // namespace qccl::train
