#include "comm/auto/compression_trial.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log.h"

namespace qccl::comm {

void TrialTimes::reset() {
  for (auto& each : shortest_) each.store(std::numeric_limits<double>::infinity(), std::memory_order_relaxed);
}

void TrialTimes::add(std::size_t candidate, double seconds) {
  double known = of(candidate);
  while (seconds < known && !shortest_[candidate].compare_exchange_weak(known, seconds, std::memory_order_relaxed)) {
  }
}

CompressionTrial::CompressionTrial(std::size_t candidates) : candidates_(candidates) {
  QCCL_CHECK(candidates >= 1 && candidates <= TrialTimes::kMaxCandidates);
}

CompressionTrial::Step CompressionTrial::next() {
  ++call_;
  if (call_ > period_) {
    call_ = 1;
    rounds_ = kRounds;
    period_ = std::min(period_ * 2, kLastPeriod);
    // Calls of the last trial may not have ended.
    times_ = std::make_shared<TrialTimes>();
  }
  if (call_ == trial_calls() + 1) return Step::compare;
  return call_ == trial_calls() + 1 + kLag ? Step::conclude : Step::call;
}

// Each round begins with another candidate, so that none always follows the same one.
std::size_t CompressionTrial::candidate() const {
  if (call_ == 0 || !in_trial()) return best_;
  const std::uint64_t index = call_ - 1;
  return (index % candidates_ + index / candidates_) % candidates_;
}

bool CompressionTrial::is_timed() const {
  const bool is_warm_up = rounds_ > kRounds && call_ <= candidates_;
  return in_trial() && !is_warm_up;
}

void CompressionTrial::conclude(std::span<const double> agreed) {
  QCCL_CHECK(agreed.size() == candidates_);
  if (!std::ranges::all_of(agreed, [](double seconds) { return std::isfinite(seconds); })) return;
  const auto fastest = static_cast<std::size_t>(std::ranges::min_element(agreed) - agreed.begin());
  best_ = agreed[fastest] < (1 - kWorthwhile) * agreed[0] ? fastest : 0;
}

}  // namespace qccl::comm
