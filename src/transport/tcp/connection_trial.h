// Whether frames to distant peers use all connections, or only the first one to each peer: all where they carry more.
//
// Several connections on one line take its queue from each other and lose packets, and what one has lost holds up the
// frames of all. Where each connection is limited, by its sender's or receiver's buffer, by a network that gives every
// flow a rate, or by a queue too short for its congestion control, all of them carry more. So a trial uses the other
// number for a while, then the same as before once more, and compares what was carried.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace qccl::tcp {

// One thread.
class ConnectionTrial {
 public:
  // All are used once they carry so many times what one does, and no longer where they carry less than so many times.
  static constexpr double kMore = 1.25;
  static constexpr double kLess = 1.1;
  // How long a measurement takes, while data waits. It begins after as long a time, in which congestion control finds
  // its rate.
  static constexpr Nanoseconds kLeastTime = std::chrono::milliseconds(200);
  static constexpr int kRoundTrips = 10;
  // Measurements until the first trial, in which the ranks learn what the line carries. Then until the next one: so
  // many, and twice as many after each.
  static constexpr int kStart = 8;
  static constexpr int kFirstRest = 16;
  static constexpr int kLongestRest = 256;

  // `round_trip`: the longest to a distant peer.
  explicit ConnectionTrial(Nanoseconds round_trip) : whole_(std::max(kLeastTime, kRoundTrips * round_trip)) {}

  bool uses_all() const { return keeps_all_ != (stage_ == Stage::other); }
  // From now on, without trials.
  void use_all() {
    keeps_all_ = is_over_ = true;
    stage_ = Stage::before;
  }

  // `acknowledged`: bytes since the start, by all distant peers. `waits`: some have not left this machine.
  void sample(std::uint64_t acknowledged, bool waits, TimePoint now) {
    if (waits && waited_ && acknowledged >= acknowledged_) {
      bytes_ += acknowledged - acknowledged_;
      time_ += now - last_;
    }
    acknowledged_ = acknowledged;
    waited_ = waits;
    last_ = now;
    if (time_ < whole_ || is_over_) return;
    const double rate = static_cast<double>(bytes_) / std::chrono::duration<double>(time_).count();
    bytes_ = 0;
    time_ = {};
    settles_ = !settles_;
    if (settles_) go_on(rate);
  }

 private:
  enum class Stage : std::uint8_t { before, other, after };

  // A measurement has ended.
  void go_on(double rate) {
    if (rest_ > 0) {
      --rest_;
      return;
    }
    switch (stage_) {
      case Stage::before:
        kept_rate_ = rate;
        stage_ = Stage::other;
        return;
      case Stage::other:
        other_rate_ = rate;
        stage_ = Stage::after;
        return;
      case Stage::after:
        kept_rate_ = std::max(kept_rate_, rate);
        keeps_all_ = keeps_all_ ? kept_rate_ > kLess * other_rate_ : other_rate_ > kMore * kept_rate_;
        stage_ = Stage::before;
        rest_ = keeps_all_ ? kLongestRest : next_rest_;
        next_rest_ = std::min(2 * next_rest_, kLongestRest);
        return;
    }
  }

  const Nanoseconds whole_;
  bool keeps_all_ = false;  // but in a trial
  bool is_over_ = false;
  Stage stage_ = Stage::before;
  double kept_rate_ = 0;   // bytes a second: the most before the trial and after it
  double other_rate_ = 0;  // in the trial
  int rest_ = kStart;      // measurements until the next trial
  int next_rest_ = kFirstRest;
  // The measurement under way.
  bool settles_ = true;  // the time before it, which does not count
  std::uint64_t bytes_ = 0;
  Nanoseconds time_{};
  // The last sample.
  std::uint64_t acknowledged_ = 0;
  bool waited_ = false;
  TimePoint last_{};
};

}  // namespace qccl::tcp
