#pragma once

#include "base/clock.h"

namespace qccl::engine {

// The time as of this round of progress: a look at the clock takes a tenth of a small operation's time. One thread. The
// clock outlives it.
class RoundClock {
 public:
  explicit RoundClock(const Clock& clock) : clock_(clock), now_(clock.now()) {}

  TimePoint now() const { return now_; }
  // Looks at the clock, for the round too or only for the caller.
  TimePoint read() { return now_ = look(); }
  TimePoint look() const { return clock_.now(); }

 private:
  const Clock& clock_;
  TimePoint now_;
};

}  // namespace qccl::engine
