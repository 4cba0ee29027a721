// What rounds of an OuterLoop cost, for its history().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "qccl/communicator.h"
#include "qccl/outer.h"

namespace qccl::train {

struct OuterJournal {
  std::uint64_t bytes_before = 0;    // of the group's context, when the round began
  std::optional<TimePoint> entered;  // since then this rank has not trained
  Nanoseconds waited{};              // before that, since the end of the last round
  TimePoint last_end{};
  std::vector<OuterRound> rounds;

  void enter(TimePoint now) { entered = entered.value_or(now); }
  void leave(TimePoint now);
  void begin(const Communicator& group);
  // Counts on in a group that may be of another context.
  void move(const Communicator& from, const Communicator& to);
  void add(OuterRound round, const Communicator& group);
  // Completes the last round, and adds it to the log.
  void end(TimePoint now, const Communicator& group);
};

}  // namespace qccl::train
