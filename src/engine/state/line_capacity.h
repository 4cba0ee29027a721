// What this rank's line to distant peers carries when it is full.
//
// On average it carries no more than the slowest peer lets it, because all ranks wait for that one. While data waits
// for many peers at once, though, only this rank's own line holds them back. So the rates are kept by the number of
// peers for which data waits, and the highest counts of those for half of the peers or more.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace qccl::engine {

// One thread.
class LineCapacity {
 public:
  static constexpr Nanoseconds kEnough = std::chrono::milliseconds(120);  // of a rate that counts
  static constexpr Nanoseconds kMemory = std::chrono::seconds(1);         // of waiting data: older rates fade
  // Means are so much too low: TCP's windows take a moment to fill the line each time.
  static constexpr double kFilling = 1.08;
  static constexpr Nanoseconds kLately = std::chrono::seconds(5);

  // Allocates here only.
  explicit LineCapacity(std::size_t peers) : peers_(peers), by_waiting_(peers + 1) {}

  // What a peer has acknowledged since the start, in bytes; whether data waits for it. Then step(), after all peers,
  // with the packets that were sent again to them since the start.
  void sample(std::size_t peer, std::uint64_t acknowledged, bool waits, Nanoseconds round_trip, TimePoint now) {
    Peer& of = peers_[peer];
    if (acknowledged >= of.acknowledged) bytes_ += acknowledged - of.acknowledged;
    of.acknowledged = acknowledged;
    ++sampled_;
    if (!waits) of.waits_since = kForever;
    // What is acknowledged now left a round trip ago.
    if (waits && of.waits_since != kForever && now - of.waits_since > round_trip + (now - last_)) ++waiting_;
    if (waits && of.waits_since == kForever) of.waits_since = now;
  }
  void step(std::uint64_t resent, TimePoint now) {
    if (resent > std::exchange(resent_, resent)) dropped_ = now;
    const Nanoseconds time = now - std::exchange(last_, now);
    const std::uint64_t bytes = std::exchange(bytes_, 0);
    const std::size_t waiting = std::exchange(waiting_, 0);
    half_ = (std::exchange(sampled_, 0) + 1) / 2;
    if (waiting > 0) by_waiting_[waiting].add(static_cast<double>(bytes), std::chrono::duration<double>(time).count());
  }

  // Packets were sent again a short while ago: the line was full, so that rate() is what it carries. Otherwise windows
  // may have kept it from being full.
  bool was_full() const { return dropped_ != TimePoint{} && last_ - dropped_ < kLately; }
  // Bytes a second; 0 if data has not waited for half of the peers for long enough.
  double rate() const {
    double highest = 0;
    Carried at_least;  // while data waited for so many peers or more
    for (std::size_t waiting = by_waiting_.size(); waiting-- > std::max<std::size_t>(1, half_);) {
      at_least.bytes += by_waiting_[waiting].bytes;
      at_least.seconds += by_waiting_[waiting].seconds;
      if (at_least.seconds >= std::chrono::duration<double>(kEnough).count())
        highest = std::max(highest, at_least.bytes / at_least.seconds);
    }
    return kFilling * highest;
  }

 private:
  struct Peer {
    std::uint64_t acknowledged = 0;
    TimePoint waits_since = kForever;
  };
  struct Carried {
    double bytes = 0;
    double seconds = 0;

    void add(double more_bytes, double more_seconds) {
      const bool is_full = seconds > std::chrono::duration<double>(kMemory).count();
      const double kept = is_full ? 1 - more_seconds / seconds : 1;
      bytes = kept * bytes + more_bytes;
      seconds = kept * seconds + more_seconds;
    }
  };

  std::vector<Peer> peers_;
  std::vector<Carried> by_waiting_;  // indexed by the number of peers
  TimePoint last_{};
  TimePoint dropped_{};
  std::uint64_t resent_ = 0;
  std::uint64_t bytes_ = 0;  // of this sample, of all peers
  std::size_t sampled_ = 0;
  std::size_t waiting_ = 0;
  std::size_t half_ = 1;
};

}  // namespace qccl::engine
