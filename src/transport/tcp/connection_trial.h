// How many connections carry the frames to a distant peer: one, unless more carry more.
//
// Several connections on one line take its queue from each other and lose packets, and what one has lost holds up the
// frames of all. Where each connection is limited, by its sender's or receiver's buffer, by a network that gives every
// flow a rate, or by a queue too short for its congestion control, more of them carry more. So a trial uses all instead
// of one, or one instead of several, for a while, then as many as before once more, and compares what was carried. What
// is limited by buffers, and loses nothing, has twice as many without a trial.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace qccl::tcp {

// What the connections in use have done since the start, all together.
struct LinkProgress {
  std::uint64_t acknowledged = 0;  // bytes
  std::uint64_t resent = 0;        // packets
  Nanoseconds busy{};              // see os::TcpSample
  Nanoseconds limited{};
  bool waits = false;  // some bytes have not left this machine
};

// One thread.
class ConnectionTrial {
 public:
  // All are used once they carry so many times what one does, and one once several carry less than so many times what
  // it does.
  static constexpr double kMore = 1.25;
  static constexpr double kLess = 1.1;
  // How long a measurement takes, while data waits. It begins after as long a time, in which congestion control finds
  // its rate.
  static constexpr Nanoseconds kLeastTime = std::chrono::milliseconds(200);
  static constexpr int kRoundTrips = 10;
  // The other number is given up early where it carries less than this part of what was carried before it, after this
  // part of a measurement.
  static constexpr double kWorse = 0.7;
  static constexpr int kEarly = 2;
  // Buffers limit connections that they hold up for more than this part of a third of a measurement.
  static constexpr double kLimited = 0.5;
  // Measurements until the first trial, in which the ranks learn what the line carries. Then until the next one: so
  // many, and twice as many after each that changed nothing.
  static constexpr int kStart = 8;
  static constexpr int kFirstRest = 16;
  static constexpr int kLongestRest = 256;

  // `round_trip`: the longest to a distant peer. `most`: connections to a peer.
  ConnectionTrial(Nanoseconds round_trip, std::size_t most)
      : whole_(std::max(kLeastTime, kRoundTrips * round_trip)), most_(most), is_over_(most == 1) {}

  // Connections to a peer.
  std::size_t used() const { return stage_ == Stage::other ? other_ : kept_; }
  // From now on, without trials.
  void use_all() {
    kept_ = most_;
    is_over_ = true;
    stage_ = Stage::before;
  }

  void sample(const LinkProgress& progress, TimePoint now) {
    if (progress.waits && last_.waits && progress.acknowledged >= last_.acknowledged) {
      bytes_ += progress.acknowledged - last_.acknowledged;
      time_ += now - sampled_;
    }
    last_ = progress;
    sampled_ = now;
    if (is_over_) return;
    if (stage_ == Stage::before && are_limited()) return take(std::min(2 * kept_, most_));
    const bool is_worse = stage_ == Stage::other && time_ >= whole_ / kEarly && measured() < kWorse * kept_rate_;
    if (is_worse) return end_trial(kept_);
    if (time_ < whole_) return;
    const double rate = measured();
    measure_anew();
    settles_ = !settles_;
    if (settles_) go_on(rate);
  }

 private:
  enum class Stage : std::uint8_t { before, other, after };

  // Bytes a second.
  double measured() const { return static_cast<double>(bytes_) / std::chrono::duration<double>(time_).count(); }
  void measure_anew() {
    bytes_ = 0;
    time_ = {};
  }

  // By buffers, for a third of a measurement.
  bool are_limited() {
    if (last_.busy - looked_.busy < whole_ / 3 || kept_ == most_) return false;
    const LinkProgress before = std::exchange(looked_, last_);
    const std::chrono::duration<double> limited = last_.limited - before.limited;
    return last_.resent == before.resent && limited > kLimited * (last_.busy - before.busy);
  }

  // A measurement has ended.
  void go_on(double rate) {
    if (rest_ > 0) {
      --rest_;
      return;
    }
    switch (stage_) {
      case Stage::before:
        kept_rate_ = rate;
        other_ = kept_ == 1 ? most_ : 1;
        stage_ = Stage::other;
        return;
      case Stage::other:
        other_rate_ = rate;
        stage_ = Stage::after;
        return;
      case Stage::after:
        kept_rate_ = std::max(kept_rate_, rate);
        const bool is_better = kept_ == 1 ? other_rate_ > kMore * kept_rate_ : kept_rate_ < kLess * other_rate_;
        return end_trial(is_better ? other_ : kept_);
    }
  }

  void end_trial(std::size_t best) {
    if (best != kept_) return take(best);
    rest_ = next_rest_;
    next_rest_ = std::min(2 * next_rest_, kLongestRest);
    begin_anew();
  }
  void take(std::size_t connections) {
    kept_ = connections;
    rest_ = kept_ > 1 ? kLongestRest : kFirstRest;
    next_rest_ = kFirstRest;
    begin_anew();
  }
  void begin_anew() {
    stage_ = Stage::before;
    settles_ = true;
    measure_anew();
  }

  const Nanoseconds whole_;
  const std::size_t most_;
  bool is_over_;
  std::size_t kept_ = 1;   // used, but in a trial
  std::size_t other_ = 1;  // used in it
  Stage stage_ = Stage::before;
  double kept_rate_ = 0;   // bytes a second: the most before the trial and after it
  double other_rate_ = 0;  // in the trial
  int rest_ = kStart;      // measurements until the next trial
  int next_rest_ = kFirstRest;
  // The measurement under way.
  bool settles_ = true;  // the time before it, which does not count
  std::uint64_t bytes_ = 0;
  Nanoseconds time_{};
  LinkProgress last_;    // of the last sample
  TimePoint sampled_{};  // when that was
  LinkProgress looked_;  // when buffers were last looked at
};

}  // namespace qccl::tcp
