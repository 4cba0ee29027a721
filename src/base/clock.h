// The library's view of time. Only SteadyClock reads the system's clock; tests and the simulator advance a ManualClock.
#pragma once

#include <chrono>
#include <cstdint>

namespace qccl {

using Nanoseconds = std::chrono::nanoseconds;

// A moment on some Clock, in nanoseconds since that clock's own start.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Nanoseconds>;

inline constexpr TimePoint kForever = TimePoint::max();

// `from` + `duration`, without overflow.
constexpr TimePoint saturating_add(TimePoint from, Nanoseconds duration) {
  return duration >= kForever - from ? kForever : from + duration;
}

// The same time in nanoseconds, as far as they reach: 292 years.
constexpr Nanoseconds saturating_nanoseconds(std::chrono::milliseconds duration) {
  constexpr auto kMost = std::chrono::floor<std::chrono::milliseconds>(Nanoseconds::max());
  if (duration > kMost) return Nanoseconds::max();
  return duration < -kMost ? Nanoseconds::min() : Nanoseconds(duration);
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

// The system's monotonic clock. Thread-safe.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const override;
};

// The time of day since 1970, in UTC without leap seconds, for contents of files. Never for durations: it may jump.
Nanoseconds time_of_day();

// Stands still until advanced. One thread.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance_to(TimePoint time) { now_ = time > now_ ? time : now_; }
  void advance(Nanoseconds duration) { now_ += duration; }

 private:
  TimePoint now_{};
};

}  // namespace qccl
