// OuterLoop: ranks of a new group agree on the round, and those that lack something take it over.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "train/outer_state.h"

namespace qccl::train {
namespace {

struct Standing {
  std::uint64_t settings = 0;  // a digest, equal on all ranks
  std::uint64_t rounds = 0;
  std::uint64_t lacks_state = 0;
  std::uint64_t last_was_idle = 0;
  std::uint64_t rounds_in_agreement = 0;
  std::uint64_t finishes = 0;
  std::uint64_t is_finishing = 0;
  std::uint64_t posted_in = 0, ended_in = 0;
  std::uint64_t group_number = 0;  // rank 0's becomes the group's

  bool lacks_one_of(const Standing& best) const { return lacks_state == 0 && rounds + 1 == best.rounds; }
  // The round that this rank lacks had its delta.
  bool took_part(const Standing& best) const { return posted_in != 0 && posted_in == best.ended_in; }
  // The others have ended finish(), or are about to, without this rank's training. They leave it with the same model.
  bool is_too_late(const Standing& best) const {
    return !took_part(best) && (finishes < best.finishes || (is_finishing != 0 && best.rounds_in_agreement > 0));
  }
};

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

void require_equal_settings(const std::vector<Standing>& standings, const Communicator& group) {
  for (std::size_t rank = 0; rank < standings.size(); ++rank) {
    if (standings[rank].settings == standings[0].settings) continue;
    throw Error({.kind = ErrorKind::invalid_argument,
                 .message = fmt::format("QCCL rank {}, group '{}': outer loop: rank {} has other options, parameters "
                                        "(names, order, sizes) or another optimizer than rank 0",
                                        group.rank(), group.name(), rank),
                 .rank = group.rank()});
  }
}

// Of the ranks that have the model, the first with the most rounds.
int source_of(const std::vector<Standing>& standings) {
  const auto is_better = [](const Standing& a, const Standing& b) {
    return a.lacks_state != b.lacks_state ? a.lacks_state < b.lacks_state : a.rounds > b.rounds;
  };
  return static_cast<int>(std::ranges::min_element(standings, is_better) - standings.begin());
}

// Where a rank is that others take all over from.
struct Position {
  std::uint64_t steps, rounds, origin_step, origin_round;
  std::uint64_t rounds_in_agreement, finishes;
  std::uint64_t ended_in;
  std::uint64_t last_was_idle, is_begun, begun_at;
  double rate_of_flight, rate;
};

}  // namespace

// Collective over the group, which has none of this loop's calls in flight.
void OuterLoop::State::settle() {
  std::vector<Standing> standings(static_cast<std::size_t>(group_.size()));
  const std::vector<Standing> own{{.settings = run_.model.settings(),
                                   .rounds = run_.schedule.rounds,
                                   .lacks_state = lacks_state_ ? 1u : 0u,
                                   .last_was_idle = run_.flight.was_idle ? 1u : 0u,
                                   .rounds_in_agreement = run_.schedule.rounds_in_agreement,
                                   .finishes = run_.schedule.finishes,
                                   .is_finishing = run_.schedule.is_finishing ? 1u : 0u,
                                   .posted_in = run_.flight.is_begun ? run_.flight.posted_in : 0,
                                   .ended_in = run_.flight.ended_in,
                                   .group_number = random_number()}};
  group_.all_gather(own, standings);
  group_number_ = standings[0].group_number;
  require_equal_settings(standings, group_);
  const int source = source_of(standings);
  const Standing& best = standings[static_cast<std::size_t>(source)];
  OuterHandover joining{source, {}};
  OuterHandover catching_up{source, {}};
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Standing& each = standings[static_cast<std::size_t>(rank)];
    if (rank == source || (each.lacks_state == 0 && each.rounds == best.rounds)) continue;
    const bool catches_up = each.lacks_one_of(best) && !each.is_too_late(best);
    (catches_up ? catching_up : joining).takers.push_back(rank);
  }
  if (!joining.takers.empty()) take_over_all(joining);
  if (group_.rank() == source) lacks_state_ = false;
  if (catching_up.takers.empty()) return;
  const bool took_part = own[0].took_part(best);
  take_over((best.rounds - 1) % run_.options.fragments, catching_up, !took_part);
  if (!catching_up.is_taker(group_.rank())) return;
  if (took_part) {
    run_.flight.was_idle = best.last_was_idle != 0;
    end_missed_round();
  } else {
    run_.skip_round();
  }
  run_.flight.ended_in = best.ended_in;
  run_.schedule.rounds_in_agreement = best.rounds_in_agreement;
  // The source has left finish() after that round.
  if (run_.schedule.is_finishing && run_.schedule.finishes < best.finishes) run_.schedule.end_finish();
}

// To one taker as a message, so that the other ranks receive nothing that they have.
void OuterLoop::State::hand_over(std::span<std::byte> data, const OuterHandover& handover) {
  if (data.empty()) return;
  if (handover.takers.size() > 1) {
    group_.broadcast(data.data(), data.size(), DataType::uint8, {.root = handover.source, .compression = none()});
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
  if (keeps_training) run_.model.follow(fragment, values, run_.flight.sent);
  std::ranges::copy(values, fragment.global.begin());
  run_.model.optimizer().load(index, saved);
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
                 .ended_in = run_.flight.ended_in,
                 .last_was_idle = run_.flight.was_idle ? 1u : 0u,
                 .is_begun = run_.flight.is_begun ? 1u : 0u,
                 .begun_at = run_.schedule.begun_at,
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
  run_.flight.ended_in = there.ended_in;
  run_.flight.is_begun = false;
  run_.flight.feedback = {};
  run_.forget_training();
  lacks_state_ = false;
  if (there.is_begun == 0) return;
  run_.begin_round(there.rate_of_flight, group_);  // with the others: a rank that has not moved
  run_.schedule.begun_at = there.begun_at;
}

// The round ended on another rank, whose global values are here: the rest of end_round().
void OuterLoop::State::end_missed_round() {
  if (!run_.flight.feedback.is_none()) run_.flight.feedback.settle(run_.schedule.rounds + 1);
  run_.note_and_blend(group_);
  run_.journal.end(run_.now(), group_);
}

}  // namespace qccl::train
