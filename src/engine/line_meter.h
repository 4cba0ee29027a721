// Measures what this rank's line to distant peers carries, from the bytes that their machines acknowledge.
//
// A sample is the rate over a round trip. It says what the line carries only while data waits behind it: a window or a
// short call may let less through. A sample that is faster than the known rate counts in any case.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace qccl::engine {

// One thread.
class LineMeter {
 public:
  static constexpr Nanoseconds kLeastInterval = std::chrono::milliseconds(20);
  // How much of the way to a faster or slower sample the rate goes. One fast sample may be an accident; after a pause
  // TCP begins slowly.
  static constexpr double kSpeedUp = 0.25;
  static constexpr double kSlowDown = 0.05;

  // The longest round trip to a distant peer; 0: there is none, and nothing to measure.
  void set_round_trip(Nanoseconds round_trip) {
    const bool was_idle = interval_ == Nanoseconds{};
    interval_ = round_trip == Nanoseconds{} ? Nanoseconds{} : std::max(kLeastInterval, round_trip);
    if (interval_ == Nanoseconds{}) next_ = kForever;
    if (interval_ != Nanoseconds{} && was_idle) next_ = {};
  }
  TimePoint next() const { return next_; }

  // `acknowledged`: bytes since the start, by all distant peers. `waits`: some have not left this machine.
  void sample(std::uint64_t acknowledged, bool waits, TimePoint now) {
    if (last_ != TimePoint{} && acknowledged >= acknowledged_) {
      const double seconds = std::chrono::duration<double>(now - last_).count();
      const double rate = static_cast<double>(acknowledged - acknowledged_) / seconds;
      if ((waits && waited_) || rate > rate_) count(rate);
    }
    acknowledged_ = acknowledged;
    waited_ = waits;
    last_ = now;
    next_ = saturating_add(now, interval_);
  }

  // Bytes a second; 0 if none was measured.
  double rate() const { return rate_; }

 private:
  void count(double rate) {
    const double share = rate_ == 0 ? 1 : rate > rate_ ? kSpeedUp : kSlowDown;
    rate_ += share * (rate - rate_);
  }

  Nanoseconds interval_{};
  TimePoint next_ = kForever;
  TimePoint last_{};
  std::uint64_t acknowledged_ = 0;
  bool waited_ = false;
  double rate_ = 0;
};

}  // namespace qccl::engine
