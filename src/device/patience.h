// A limit of time for work of a device that a thread polls.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace qccl::device {

// Time in which the thread had lost its processor does not count: the driver's threads may have lost theirs too. One
// thread.
class Patience {
 public:
  explicit Patience(Nanoseconds limit) : left_(limit), last_(SteadyClock().now()) {}

  // To be asked at every poll.
  bool is_over() {
    const TimePoint now = SteadyClock().now();
    left_ -= std::min<Nanoseconds>(now - last_, kLongestStep);
    last_ = now;
    return left_ <= Nanoseconds::zero();
  }

 private:
  static constexpr Nanoseconds kLongestStep = std::chrono::milliseconds(2);  // between two polls

  Nanoseconds left_;
  TimePoint last_;
};

}  // namespace qccl::device
