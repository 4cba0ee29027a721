// The trial of candidates in the calls of one class: which candidate each call takes, and what the calls showed.
//
// A trial goes by the number of the call alone, so that all ranks take the same candidate: each candidate in turn, for
// some rounds; then the ranks compare their times by a small all_reduce, which may take kLag calls; then the calls take
// the fastest, until the next trial. The very first round is not timed. Periods between trials double.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "choice/algorithm_table.h"
#include "choice/comparison.h"
#include "codec/registry.h"
#include "qccl/communicator.h"

namespace qccl::comm {

// Each candidate's shortest time. Calls may end on any thread.
class TrialTimes {
 public:
  static constexpr std::size_t kMaxCandidates = 8;

  TrialTimes() {
    for (auto& each : shortest_) each.store(std::numeric_limits<double>::infinity(), std::memory_order_relaxed);
  }
  void add(std::size_t candidate, double seconds) {
    double known = of(candidate);
    while (seconds < known && !shortest_[candidate].compare_exchange_weak(known, seconds, std::memory_order_relaxed)) {
    }
  }
  // Infinity before a call has ended.
  double of(std::size_t candidate) const { return shortest_[candidate].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<double>, kMaxCandidates> shortest_;
};

// One thread at a time.
class CompressionTrial {
 public:
  static constexpr int kRounds = 4;         // in which each candidate has one call
  static constexpr std::uint64_t kLag = 8;  // calls
  static constexpr std::uint64_t kFirstPeriod = 512;
  static constexpr std::uint64_t kLastPeriod = 16384;
  // Candidate 0, which loses nothing, gives way only to one that saves this share of its time.
  static constexpr double kWorthwhile = 0.03;

  explicit CompressionTrial(std::size_t candidates) : candidates_(candidates) {
    QCCL_CHECK(candidates >= 1 && candidates <= TrialTimes::kMaxCandidates);
  }

  // What to do before the next call.
  enum class Step { call, compare, conclude };
  Step next() {
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

  // The candidate of the call that next() announced, and whether the call is timed. Before any call: candidate 0.
  // Each round begins with another candidate, so that none always follows the same one.
  std::size_t candidate() const {
    if (call_ == 0 || !in_trial()) return best_;
    const std::uint64_t index = call_ - 1;
    return (index % candidates_ + index / candidates_) % candidates_;
  }
  bool is_timed() const {
    const bool is_warm_up = rounds_ > kRounds && call_ <= candidates_;
    return in_trial() && !is_warm_up;
  }

  // This rank's times; calls that have not ended keep them alive.
  const std::shared_ptr<TrialTimes>& times() const { return times_; }

  // Takes the times that all ranks agreed on; one that is not finite was not measured.
  void conclude(std::span<const double> agreed) {
    QCCL_CHECK(agreed.size() == candidates_);
    if (!std::ranges::all_of(agreed, [](double seconds) { return std::isfinite(seconds); })) return;
    const auto fastest = static_cast<std::size_t>(std::ranges::min_element(agreed) - agreed.begin());
    best_ = agreed[fastest] < (1 - kWorthwhile) * agreed[0] ? fastest : 0;
  }

 private:
  std::uint64_t trial_calls() const { return static_cast<std::uint64_t>(rounds_) * candidates_; }
  bool in_trial() const { return call_ <= trial_calls(); }

  std::size_t candidates_;
  std::shared_ptr<TrialTimes> times_ = std::make_shared<TrialTimes>();
  int rounds_ = kRounds + 1;  // of the first trial
  std::uint64_t period_ = kFirstPeriod;
  std::uint64_t call_ = 0;  // since the trial began, from 1
  std::size_t best_ = 0;
};

// The trial of one class. One thread at a time. Ranks that make the same calls in the same order take the same
// candidates.
struct ClassTrial {
  explicit ClassTrial(const CallClass& call)
      : candidates(candidates_of(call.compression)), has_root(is_rooted(call.collective)), trial(candidates.size()) {}

  const Compression& current() const { return candidates[trial.candidate()]; }
  // This rank's times, for the ranks to compare. The fastest rank's count: it came last and waited for no other. With a
  // root, the slowest's: the others only send, or only receive.
  Comparison& compare() {
    comparison.values.resize(candidates.size());
    for (std::size_t i = 0; i < candidates.size(); ++i) comparison.values[i] = trial.times()->of(i);
    return comparison;
  }
  ReduceOp comparison_op() const { return has_root ? ReduceOp::max : ReduceOp::min; }

  std::vector<Compression> candidates;
  bool has_root;
  CompressionTrial trial;
  Comparison comparison{};  // of times
};

// Measures one call for a trial. The clock outlives it.
class TimedCall {
 public:
  TimedCall(std::shared_ptr<TrialTimes> times, std::size_t candidate, const Clock& clock)
      : times_(std::move(times)), candidate_(candidate), clock_(&clock) {}
  void begin() { begin_ = clock_->now(); }
  void end() const { times_->add(candidate_, std::chrono::duration<double>(clock_->now() - begin_).count()); }

 private:
  std::shared_ptr<TrialTimes> times_;
  std::size_t candidate_;
  const Clock* clock_;
  TimePoint begin_{};
};

using CompressionTrials = CallClassMemo<ClassTrial>;

}  // namespace qccl::comm
