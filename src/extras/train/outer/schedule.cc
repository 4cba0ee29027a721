#include "extras/train/outer/schedule.h"

namespace qccl::train {

void OuterSchedule::begin_anew() {
  position.origin_step = position.steps;
  position.origin_round = position.rounds;
  wait_for_next();
}

void OuterSchedule::end_finish() {
  is_finishing = false;
  position.rounds_in_agreement = 0;
  ++position.finishes;
  begin_anew();
}

void OuterSchedule::wait_for_next() {
  if (options.every_time) next_begin = clock.now() + *options.every_time / static_cast<int>(options.fragments);
}

bool OuterSchedule::is_begin_due(std::uint64_t at_step, std::uint64_t ended) const {
  if (is_finishing) return true;
  if (options.every_time) return clock.now() >= next_begin;
  return at_step >= position.origin_step + (ended - position.origin_round + 1) * options.every / options.fragments;
}

}  // namespace qccl::train
