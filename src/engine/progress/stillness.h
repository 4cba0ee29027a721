// How long nothing has moved, without a look at the clock while something does.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace qccl::engine {

class Stillness {
 public:
  // Something has moved.
  void end() { since_ = kForever; }
  // Nothing has moved at `now`, nor for this time before it. It begins with the first such question.
  bool has_lasted(Nanoseconds duration, TimePoint now) {
    since_ = std::min(since_, now);
    return now - since_ >= duration;
  }

 private:
  TimePoint since_ = kForever;
};

}  // namespace qccl::engine
