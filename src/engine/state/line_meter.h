// Measures what this rank's line to distant peers carries, from the bytes that their machines acknowledge.
//
// These bytes say what the line carries only while data waits: a window or a short call may let less through. A
// measurement is therefore the mean over samples between which data has waited: over a round trip, because
// acknowledgements come in bursts, but over two samples at least, because the phases of a short call fill no more. Once
// a rate is known, a round trip in which more came counts in any case.
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
  // How much of the way to a faster or slower measurement the rate goes. One may be an accident; after a pause TCP
  // begins slowly.
  static constexpr double kSpeedUp = 0.5;
  static constexpr double kSlowDown = 0.05;
  static constexpr int kEnough = 8;  // measurements before the rate is known

  // The longest round trip to a distant peer; 0: there is none, and nothing to measure.
  void set_round_trip(Nanoseconds round_trip) {
    const bool was_idle = interval_ == Nanoseconds{};
    interval_ = round_trip == Nanoseconds{} ? Nanoseconds{} : std::max(kLeastInterval, round_trip / 4);
    whole_ = std::max(round_trip, 2 * interval_);
    if (interval_ == Nanoseconds{}) next_ = kForever;
    if (interval_ != Nanoseconds{} && was_idle) next_ = {};
  }
  TimePoint next() const { return next_; }

  // `acknowledged`: bytes since the start, by all distant peers. `waits`: some have not left this machine.
  void sample(std::uint64_t acknowledged, bool waits, TimePoint now) {
    if (last_ != TimePoint{} && acknowledged >= acknowledged_) {
      const Span sampled{acknowledged - acknowledged_, now - last_};
      all_.add(sampled);
      if (waits && waited_) busy_.add(sampled);
      if (!waits || busy_.time >= whole_) measure_busy();
      if (all_.time >= whole_) measure_all();
    }
    acknowledged_ = acknowledged;
    waited_ = waits;
    last_ = now;
    next_ = saturating_add(now, interval_);
  }

  // Bytes a second; 0 if none was measured.
  double rate() const { return measurements_ < kEnough ? 0 : rate_; }

 private:
  struct Span {
    std::uint64_t bytes = 0;
    Nanoseconds time{};
    void add(const Span& more) {
      bytes += more.bytes;
      time += more.time;
    }
    double rate() const { return static_cast<double>(bytes) / std::chrono::duration<double>(time).count(); }
  };

  void measure_busy() {
    if (busy_.time >= 2 * interval_) count(busy_.rate());
    busy_ = {};
  }
  void measure_all() {
    if (rate() > 0 && all_.rate() > rate_) count(all_.rate());
    all_ = {};
  }
  void count(double rate) {
    const double share = measurements_ == 0 ? 1 : rate > rate_ ? kSpeedUp : kSlowDown;
    rate_ += share * (rate - rate_);
    measurements_ = std::min(measurements_ + 1, kEnough);
  }

  Nanoseconds interval_{};
  TimePoint next_ = kForever;
  TimePoint last_{};
  std::uint64_t acknowledged_ = 0;
  bool waited_ = false;
  Span busy_;            // samples in a row at whose ends data waited
  Span all_;             // the last samples
  Nanoseconds whole_{};  // the longest measurement
  int measurements_ = 0;
  double rate_ = 0;
};

}  // namespace qccl::engine
