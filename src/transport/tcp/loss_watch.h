// Tells packets that a line loses by itself from those that a full queue drops.
//
// Cubic takes both for a full queue and slows down; bbr does not, but falls behind where several connections share a
// line. A packet that is lost while the round trip is about the shortest met no queue.
#pragma once

#include <cstdint>

#include "os/net/socket.h"

namespace qccl::tcp {

// Of one connection. One thread.
class LossWatch {
 public:
  static constexpr std::uint64_t kEnough = 8;  // packets, before anything is concluded
  static constexpr double kLossyShare = 2e-4;  // of the packets sent
  static constexpr double kShortQueue = 1.1;   // times the shortest round trip, and
  static constexpr Nanoseconds kJitter = std::chrono::microseconds(500);

  // A sample of the connection; true if it has lost packets that met no queue. Once true, always.
  bool is_lossy(const os::LossSample& sample) {
    const std::uint64_t resent = sample.resent_packets - resent_;
    resent_ = sample.resent_packets;
    const auto longest =
        Nanoseconds(static_cast<std::int64_t>(kShortQueue * static_cast<double>(sample.shortest.count())));
    if (sample.round_trip <= longest + kJitter) lost_ += resent;
    is_lossy_ |=
        lost_ >= kEnough && static_cast<double>(lost_) > kLossyShare * static_cast<double>(sample.sent_packets);
    return is_lossy_;
  }

 private:
  std::uint64_t resent_ = 0;
  std::uint64_t lost_ = 0;  // resent while the queue was short
  bool is_lossy_ = false;
};

}  // namespace qccl::tcp
