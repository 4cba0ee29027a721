// OuterLoop: ranks of a new group agree on the round, and those that lack something take it over.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "extras/train/outer/state.h"

namespace qccl::train {
namespace {

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

void require_equal_settings(const std::vector<OuterStanding>& standings, const Communicator& group) {
  for (std::size_t rank = 0; rank < standings.size(); ++rank) {
    if (standings[rank].settings == standings[0].settings) continue;
    fail(group, ErrorKind::invalid_argument,
         fmt::format("rank {} has other options, parameters (names, order, sizes) or another optimizer than rank 0",
                     rank));
  }
}

}  // namespace

OuterStanding OuterLoop::State::standing() const {
  return {.settings = run_.model.settings(),
          .position = run_.position,
          .rate = run_.model.optimizer().learning_rate(),
          .next_begin_in = (run_.schedule.next_begin - run_.now()).count(),
          .lacks_state = lacks_state_,
          .group_number = random_number()};
}

// Collective over the group, which has none of this loop's calls in flight.
void OuterLoop::State::settle() {
  const std::vector<OuterStanding> standings = exchange_standings(standing(), group_);
  group_number_ = standings[0].group_number;
  require_equal_settings(standings, group_);
  const int source = source_of(standings);
  OuterStanding best = standings[static_cast<std::size_t>(source)];
  // By rank: whether the one round that it lacks had its delta.
  std::vector<std::uint64_t> took_part(standings.size());
  if (std::ranges::any_of(standings, [&](const OuterStanding& each) { return each.lacks_one_of(best); })) {
    group_.all_gather(std::vector{std::uint64_t{run_.has_posted_in(best.position.lineage.last_group)}}, took_part);
  }
  OuterHandover joining{source, {}};
  OuterHandover catching_up{source, {}};
  for (int rank = 0; rank < group_.size(); ++rank) {
    const OuterStanding& each = standings[static_cast<std::size_t>(rank)];
    if (rank == source || each.is_level_with(best)) continue;
    // A rank without whose training the others have ended finish() begins its next rounds in other steps than they.
    const bool catches_up = each.lacks_one_of(best) && (took_part[static_cast<std::size_t>(rank)] != 0 ||
                                                        each.position.finishes == best.position.finishes);
    (catches_up ? catching_up : joining).takers.push_back(rank);
  }
  if (best.lacks_state) {  // as all ranks do
    best.position.is_begun = false;
    best.position.lineage.begin(group_number_);
    if (group_.rank() == source) {
      forget_training();
      run_.position.lineage = best.position.lineage;
    }
  }
  if (!joining.takers.empty()) take_over_all(joining, best);
  if (catching_up.takers.empty()) return;
  catch_up(catching_up, best, took_part[static_cast<std::size_t>(group_.rank())] != 0);
}

// An interrupted take-over may have left values of other ranks. What this rank has trained is no difference to them.
void OuterLoop::State::forget_training() {
  run_.position.is_begun = false;
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
void OuterLoop::State::take_over_all(const OuterHandover& handover, const OuterStanding& there) {
  const bool is_taker = handover.is_taker(group_.rank());
  if (is_taker) lacks_state_ = true;
  for (std::size_t i = 0; i < run_.model.fragments().size(); ++i) take_over(i, handover, false);
  if (!is_taker) return;
  run_.schedule.is_finishing &= run_.position.finishes >= there.position.finishes;
  run_.schedule.has_skipped = false;
  run_.position = there.position;
  forget_training();
  begin_as(there, there.position.begun_at);  // with the others: a rank that has not moved
}

void OuterLoop::State::catch_up(const OuterHandover& handover, const OuterStanding& there, bool took_part) {
  const OuterPosition& best = there.position;
  OuterPosition& own = run_.position;
  const bool is_taker = handover.is_taker(group_.rank());
  const bool skips = is_taker && !took_part;
  if (skips && own.is_begun) run_.cancel_round();
  take_over((best.rounds - 1) % run_.options.fragments, handover, skips);
  if (!is_taker) return;
  own.was_idle = best.was_idle;
  own.lineage = best.lineage;
  if (skips) {
    run_.skip_round();
    const auto in_own_steps = [&](std::uint64_t step) { return own.origin_step + step - best.origin_step; };
    const bool counts_steps = !run_.options.every_time;
    if (counts_steps) own.steps = std::max(own.steps, in_own_steps(best.steps));
    begin_as(there, counts_steps ? in_own_steps(best.begun_at) : own.steps);
  } else {
    end_missed_round();
  }
  own.rounds_in_agreement = best.rounds_in_agreement;
  // The source has left finish() after that round.
  if (run_.schedule.is_finishing && own.finishes < best.finishes) run_.schedule.end_finish();
}

void OuterLoop::State::begin_as(const OuterStanding& there, std::uint64_t begun_at) {
  run_.model.optimizer().set_learning_rate(there.rate);
  if (there.position.is_begun) {
    run_.begin_round(there.position.begun_rate, group_);
    run_.position.begun_at = begun_at;
  }
  run_.schedule.begin_in(Nanoseconds(there.next_begin_in));
}

// The round ended on another rank, whose global values are here: the rest of end_round().
void OuterLoop::State::end_missed_round() {
  run_.flight.redo_feedback(run_.position.rounds + 1, run_.position.lineage.last_group);
  run_.note_and_blend(group_);
  run_.journal.end(run_.now(), group_);
}

}  // namespace qccl::train
