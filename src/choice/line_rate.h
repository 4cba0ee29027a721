// The rate of the lines between distant ranks, learned from the calls of a group.
//
// Each rank measures what its line carries (engine/line_meter.h). After some large calls the ranks compare what they
// have measured, by the number of the call alone: all ranks then take the same rate, and with it the same windows and
// algorithms, from the same call on. Periods between comparisons double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "choice/comparison.h"

namespace qccl::comm {

// One thread at a time.
class LineRate {
 public:
  static constexpr std::uint64_t kLeastBytes = 1 << 20;  // of a call that counts
  static constexpr std::uint64_t kFirst = 2;             // the call before which the ranks compare first
  static constexpr std::uint64_t kLag = 2;               // calls until they know the result
  static constexpr std::uint64_t kLastPeriod = 512;
  static constexpr double kClearly = 0.1;  // a rate that differs by less from the one in use changes nothing

  // `hosts`: by group rank. `rank`: this one's, in the group. `rate`: in use until another is learned.
  LineRate(std::span<const int> hosts, int rank, double rate)
      : host_(static_cast<std::size_t>(hosts[static_cast<std::size_t>(rank)])),
        hosts_(1 + static_cast<std::size_t>(std::ranges::max(hosts))),
        in_use_(rate) {}

  // What to do before the next call.
  enum class Step { none, compare, conclude };
  Step next(std::uint64_t bytes) {
    if (bytes < kLeastBytes) return Step::none;
    ++call_;
    if (call_ == next_) return Step::compare;
    if (call_ != next_ + kLag) return Step::none;
    next_ += std::max(kLag + 1, std::min(next_, kLastPeriod));
    return Step::conclude;
  }

  // What this rank adds to the comparison, a sum: the ranks of a host share its line.
  Comparison& compare(double own_rate) {
    comparison_.values.assign(hosts_, 0);
    comparison_.values[host_] = own_rate;
    return comparison_;
  }
  Comparison& comparison() { return comparison_; }

  // The rate of the slowest host that measured one; 0 if nothing changes.
  double conclude() {
    double slowest = 0;
    for (const double rate : comparison_.values) {
      if (rate > 0 && (slowest == 0 || rate < slowest)) slowest = rate;
    }
    if (slowest == 0 || std::abs(slowest - in_use_) <= kClearly * in_use_) return 0;
    return in_use_ = slowest;
  }

 private:
  std::size_t host_;
  std::size_t hosts_;
  double in_use_;
  std::uint64_t call_ = 0;  // large ones
  std::uint64_t next_ = kFirst;
  Comparison comparison_;
};

}  // namespace qccl::comm
