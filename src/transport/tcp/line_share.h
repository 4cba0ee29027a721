// The credit of a rank's line: how much the peers on other hosts together may have on their way to it, over all
// calls, messages and streams. TCP's receive windows say it, so that no program has to answer in time.
//
// There is no limit until packets keep arriving out of order, which means that queues go on dropping some: at this
// host, where several peers send at once, or at theirs, which as a rule send to many. TCP's congestion control alone
// does not end that where many connections, with two packets each at least, meet in a short queue. From then on the
// limit is what was on its way, less a part for each period with such packets, and more again without. Connections that
// carry data share it equally.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "os/net/socket.h"

namespace qccl::tcp {

// One thread.
class LineShare {
 public:
  static constexpr Nanoseconds kLeastTime = std::chrono::milliseconds(100);  // of a period, in which data came
  static constexpr int kRoundTrips = 4;                                      // of a period, at least
  static constexpr std::uint64_t kEnough = 100;                              // packets of a period, at least
  static constexpr std::uint64_t kIdle = 8 * 1024;                           // bytes of a sample that came by the way
  // Shares of packets that come early: one drop makes several. Above the first the limit falls, below the second
  // it rises.
  static constexpr double kMany = 0.01;
  static constexpr double kFew = 0.002;
  static constexpr int kInARow = 6;  // periods of many before there is a limit: congestion control has found no rate
  static constexpr double kLess = 0.9;
  // It rises fast up to this part of the limit at which packets came early last, and slowly from there on, but faster
  // with each period that has few: twice as fast after so many.
  static constexpr double kMore = 1.05;
  static constexpr double kNear = 0.9;
  static constexpr double kSlowlyMore = 0.004;
  static constexpr double kTwiceAsFast = 8;
  static constexpr double kNone = 4;  // times what was on its way at first: no limit any more
  // The least window of a connection in bytes: four packets. If one is dropped, the acknowledgements of the others say
  // so.
  static constexpr double kLeastWindow = 6 * 1024;

  explicit LineShare(std::size_t connections) : connections_(connections) {}

  // What a connection has received since its start. Then step(), after all samples.
  void sample(std::size_t connection, const os::TcpSample& sample) {
    Connection& of = connections_[connection];
    const os::TcpSample before = std::exchange(of.last, sample);
    const std::uint64_t bytes = sample.received_bytes - before.received_bytes;
    bytes_ += bytes;
    of.bytes += bytes;
    packets_ += sample.received_packets - before.received_packets;
    early_ += sample.early_packets - before.early_packets;
  }
  void step(TimePoint now) {
    const Nanoseconds since = now - last_;
    last_ = now;
    if (bytes_ - counted_ >= kIdle) time_ += since;
    counted_ = bytes_;
    Nanoseconds longest{};
    for (const Connection& each : connections_) {
      if (each.bytes >= kIdle) longest = std::max(longest, each.last.round_trip);
    }
    if (time_ < std::max(kLeastTime, kRoundTrips * longest) || packets_ < kEnough) return;
    adjust();
    for (Connection& each : connections_) each.bytes = 0;
    bytes_ = counted_ = packets_ = early_ = 0;
    time_ = {};
  }

  // No limit any more, until packets arrive early again.
  void lift() { limit_ = 0; }

  bool limits() const { return limit_ > 0; }
  // How much all connections together may have on their way, in bytes; 0 if there is no limit.
  double limit() const { return limit_; }
  // The part of one connection; 0 if there is no limit.
  std::uint32_t window(std::size_t connection) const {
    return limits() ? static_cast<std::uint32_t>(connections_[connection].window) : 0;
  }

 private:
  struct Connection {
    os::TcpSample last;
    std::uint64_t bytes = 0;  // in this period
    double window = 0;
  };

  void adjust() {
    const auto is_active = [](const Connection& each) { return each.bytes >= kIdle; };
    const auto active = static_cast<double>(std::ranges::count_if(connections_, is_active));
    if (active == 0) return;
    const double share = static_cast<double>(early_) / static_cast<double>(packets_);
    in_a_row_ = share > kMany ? in_a_row_ + 1 : 0;
    if (!limits() && in_a_row_ < kInARow) return;
    if (share > kMany) {
      if (!limits()) limit_ = first_ = on_the_way();
      drops_at_ = limit_;
      limit_ = std::max(kLess * limit_, active * kLeastWindow);
      calm_ = 0;
    } else if (share < kFew) {
      limit_ *= limit_ < kNear * drops_at_ ? kMore : 1 + kSlowlyMore * (1 + calm_ / kTwiceAsFast);
      ++calm_;
    }
    if (limit_ > kNone * first_) limit_ = 0;
    for (Connection& each : connections_) {
      if (is_active(each) || each.window == 0) each.window = std::max(kLeastWindow, limit_ / active);
    }
  }

  // The mean of the period, in bytes.
  double on_the_way() const {
    double sum = 0;
    const double seconds = std::chrono::duration<double>(time_).count();
    for (const Connection& each : connections_) {
      sum += static_cast<double>(each.bytes) / seconds * std::chrono::duration<double>(each.last.round_trip).count();
    }
    return sum;
  }

  std::vector<Connection> connections_;
  int in_a_row_ = 0;  // periods with many
  double limit_ = 0;
  double first_ = 0;     // what was on its way when the limit began
  double drops_at_ = 0;  // the limit at which packets came early last
  int calm_ = 0;         // periods with few since then
  TimePoint last_{};
  // The period under way.
  Nanoseconds time_{};  // in which data came
  std::uint64_t bytes_ = 0;
  std::uint64_t counted_ = 0;  // of them at the last step
  std::uint64_t packets_ = 0;
  std::uint64_t early_ = 0;  // packets
};

}  // namespace qccl::tcp
