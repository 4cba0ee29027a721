// All that a rank has of an OuterLoop, besides the group.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "extras/train/outer/flight.h"
#include "extras/train/outer/journal.h"
#include "extras/train/outer/model.h"
#include "extras/train/outer/position.h"
#include "extras/train/outer/schedule.h"

namespace qccl::train {

// Throws an error that names the rank and the group.
[[noreturn]] void fail(const Communicator& group, ErrorKind kind, const std::string& what);

struct OuterRun {
  OuterRun(std::vector<OuterParameter> parameters, const OuterOptions& options);

  const OuterOptions options;
  OuterModel model;
  OuterPosition position{};
  OuterSchedule schedule{options, position};
  OuterFlight flight{};
  std::optional<std::size_t> unblended{};  // the fragment of the last round, until the own values are blended
  OuterJournal journal{};

  TimePoint now() const { return schedule.clock.now(); }
  // That of the round in flight, else of the next one.
  OuterFragment& fragment() { return model.fragments()[schedule.fragment()]; }
  void count_step(double samples);
  bool begins_round() const;
  void begin_round(double rate, const Communicator& group);
  // The next round is the same one, begun again.
  void cancel_round();
  // The end of a round whose global values are here. If a parameter's store() throws, the round has ended all the same.
  void note_and_blend(const Communicator& group);
  void blend_last();
  // The fragment's next round will have this rank's delta of both.
  void skip_round();
  // Whether a round that ended in the group of this number had this rank's delta.
  bool has_posted_in(std::uint64_t group_number) const;

  // ---- saved_state.cc
  std::vector<std::byte> save() const;
  void load(std::span<const std::byte> saved, bool is_own, const Communicator& group);
  // Leaves the state of a rank that has not moved from the global model.
  void forget_training();
  void note_delta();
};

}  // namespace qccl::train
