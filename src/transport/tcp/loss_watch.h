// Tells packets that a line loses by itself from those that a full queue drops.
//
// Cubic takes both for a full queue and slows down; bbr does not, but falls behind where several connections share a
// line. Cubic on a line that loses packets never fills it: its round trip stays about the shortest. A full queue makes
// it longer before packets are dropped.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "os/net/socket.h"

namespace qccl::tcp {

// Of one connection. One thread.
class LossWatch {
 public:
  static constexpr std::uint64_t kEnough = 16;  // packets, before anything is concluded
  static constexpr double kLossyShare = 2e-4;   // of the packets sent
  static constexpr double kShortQueue = 1.4;    // times the shortest round trip, and
  static constexpr Nanoseconds kJitter = std::chrono::milliseconds(2);
  static constexpr int kPatience = 25;  // samples after a longer round trip in which packets may be due to that queue

  // A sample of the connection; true if it has lost packets that met no queue. Once true, always.
  bool is_lossy(const os::TcpSample& sample) {
    const std::uint64_t resent = sample.resent_packets - resent_;
    resent_ = sample.resent_packets;
    const std::chrono::duration<double, std::nano> longest = kShortQueue * sample.shortest + kJitter;
    since_queue_ = sample.round_trip > longest ? 0 : std::min(since_queue_ + 1, kPatience);
    if (since_queue_ == kPatience) lost_ += resent;
    const double share =
        static_cast<double>(lost_) / static_cast<double>(std::max<std::uint64_t>(1, sample.sent_packets));
    is_lossy_ |= lost_ >= kEnough && share > kLossyShare;
    return is_lossy_;
  }

 private:
  std::uint64_t resent_ = 0;
  std::uint64_t lost_ = 0;  // resent long after the last queue
  int since_queue_ = 0;     // samples
  bool is_lossy_ = false;
};

}  // namespace qccl::tcp
