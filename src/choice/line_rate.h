// The rates of the lines between distant ranks, learned from the calls of a group.
//
// Each rank measures what its line carries (engine/state/line_meter.h), and what it carries when it is full
// (line_capacity.h). After some large calls the ranks compare what they have measured, by the number of the call alone:
// all ranks then take the same rate, and with it the same windows and algorithms, from the same call on. Where some
// lines are slower than others, they also take the same shares of owners. Periods between comparisons double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "choice/comparison.h"
#include "plan/cost/shares.h"

namespace qccl::comm {

// A line to distant ranks, in bytes a second; 0: not known.
struct MeasuredLine {
  double rate = 0;     // while data waited for it, or when it is full
  double full = 0;     // when it is full
  bool loses = false;  // packets by itself, not only where it is full
};

// What the ranks have agreed on.
struct AgreedLines {
  double rate = 0;                // of the slowest host
  bool loses = false;             // any of them
  std::vector<int> shares{};      // of each rank (plan/cost/shares.h); empty: equal
  double shares_rate = 0;         // plan::equivalent_rate() of the shares; 0 if they are equal
  double window_rate = 0;         // of the windows: the middle host's, at least the slowest one's
  std::vector<double> by_host{};  // what each line carries when it is full, one value for all that are not slow
};

// One thread at a time.
class LineRate {
 public:
  static constexpr std::uint64_t kLeastBytes = 1 << 20;  // of a call that counts
  static constexpr std::uint64_t kFirst = 2;             // the call before which the ranks compare first
  static constexpr std::uint64_t kLag = 2;               // calls until they know the result
  static constexpr std::uint64_t kLastPeriod = 512;
  static constexpr double kClearly = 0.1;  // a rate that differs by less from the one in use changes nothing
  // Lines below this part of the middle one's rate are slow, and all others count as equal: what a line was seen to
  // carry is a lower bound of its rate, and grows with the bytes that its host is given to move.
  static constexpr double kSlow = 2.0 / 3;
  static constexpr double kFastAgain = 0.8;  // the same part for a host whose share is less than an equal one

  // `hosts`: by group rank. `rank`: this one's, in the group. `rate`: in use until another is learned.
  LineRate(std::vector<int> hosts, int rank, double rate)
      : hosts_(std::move(hosts)),
        host_(static_cast<std::size_t>(hosts_[static_cast<std::size_t>(rank)])),
        host_count_(1 + static_cast<std::size_t>(std::ranges::max(hosts_))),
        in_use_{.rate = rate, .window_rate = rate} {}

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
  Comparison& compare(const MeasuredLine& own) {
    comparison_.values.assign(2 * host_count_ + 1, 0);
    comparison_.values[host_] = own.rate;
    comparison_.values[host_count_ + host_] = own.full;
    comparison_.values.back() = own.loses ? 1 : 0;
    return comparison_;
  }
  Comparison& comparison() { return comparison_; }

  // What is in use from now on; nothing if it stays as it was.
  std::optional<AgreedLines> conclude() {
    const auto middle = comparison_.values.begin() + static_cast<std::ptrdiff_t>(host_count_);
    const double slowest = slowest_of({comparison_.values.begin(), middle});
    const std::vector<double> full(middle, comparison_.values.end() - 1);
    const plan::HostLines lines{hosts_, without_fast(full)};
    const bool loses = comparison_.values.back() > 0;
    std::vector<int> shares = plan::shares_of(lines, in_use_.shares);
    const bool has_new_rate = slowest > 0 && differs(slowest, in_use_.rate);
    const double window_rate = std::max(has_new_rate ? slowest : in_use_.rate, middle_of(full));
    const bool is_as_before = !has_new_rate && shares == in_use_.shares && loses == in_use_.loses;
    if (is_as_before && !differs(window_rate, in_use_.window_rate)) return std::nullopt;
    in_use_.loses = loses;
    in_use_.window_rate = window_rate;
    if (has_new_rate) in_use_.rate = slowest;
    in_use_.shares_rate = shares.empty() ? 0 : plan::equivalent_rate(lines, shares);
    in_use_.shares = std::move(shares);
    in_use_.by_host = lines.rates;
    return in_use_;
  }

 private:
  // Of the hosts that measured one; 0 if none did.
  static double slowest_of(const std::vector<double>& rates) {
    double slowest = 0;
    for (const double rate : rates) {
      if (rate > 0 && (slowest == 0 || rate < slowest)) slowest = rate;
    }
    return slowest;
  }

  static bool differs(double rate, double in_use) { return std::abs(rate - in_use) > kClearly * in_use; }

  // Of the hosts that have ranks.
  double middle_of(const std::vector<double>& rates) const {
    std::vector<double> own;
    for (std::size_t host = 0; host < host_count_; ++host) {
      if (rank_on(host) < hosts_.size()) own.push_back(rates[host]);
    }
    const auto middle = own.begin() + static_cast<std::ptrdiff_t>(own.size() / 2);
    std::ranges::nth_element(own, middle);
    return *middle;
  }
  // The same with one rate for all hosts that are not slow; unchanged if a host's is unknown.
  std::vector<double> without_fast(std::vector<double> rates) const {
    const double middle = middle_of(rates);
    for (std::size_t host = 0; host < host_count_; ++host) {
      if (rates[host] >= middle * (was_slow(host) ? kFastAgain : kSlow)) rates[host] = middle;
    }
    return rates;
  }
  // One of the host's ranks; as many as there are if it has none.
  std::size_t rank_on(std::size_t host) const {
    return static_cast<std::size_t>(std::ranges::find(hosts_, static_cast<int>(host)) - hosts_.begin());
  }
  bool was_slow(std::size_t host) const {
    const std::size_t rank = rank_on(host);
    return rank < in_use_.shares.size() && in_use_.shares[rank] < plan::kEqualShare;
  }

  std::vector<int> hosts_;
  std::size_t host_;
  std::size_t host_count_;
  AgreedLines in_use_;
  std::uint64_t call_ = 0;  // large ones
  std::uint64_t next_ = kFirst;
  Comparison comparison_;
};

}  // namespace qccl::comm
