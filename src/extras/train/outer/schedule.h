// When rounds of an OuterLoop begin and end. Rounds are numbered; round r is that of fragment r mod `fragments`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "extras/train/outer/position.h"
#include "qccl/outer.h"

namespace qccl::train {

struct OuterSchedule {
  const OuterOptions& options;
  OuterPosition& position;
  const SteadyClock clock{};
  TimePoint next_begin{};  // with every_time
  bool is_finishing = false;
  bool is_loaded = false;    // and has ended no round since
  bool has_skipped = false;  // the last round, so that its fragment is still to be synchronised

  void begin_anew();
  void begin_in(Nanoseconds time) { next_begin = clock.now() + time; }
  void end_finish();
  void wait_for_next();
  // `ended`: rounds ended by then.
  bool is_begin_due(std::uint64_t at_step, std::uint64_t ended) const;
  bool is_end_due(std::uint64_t at_step) const { return is_finishing || at_step >= position.begun_at + options.delay; }
  std::size_t fragment() const { return position.rounds % options.fragments; }
};

}  // namespace qccl::train
