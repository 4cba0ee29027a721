// The trial of candidates in the calls of one class: which candidate each call takes, and what the calls showed.
//
// A trial goes by the number of the call alone, so that all ranks take the same candidate: each candidate in turn, for
// some rounds; then the ranks compare their times by a small all_reduce, which may take kLag calls; then the calls take
// the fastest, until the next trial. The very first round is not timed. Periods between trials double.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace qccl::comm {

// Each candidate's shortest time. Calls may end on any thread.
class TrialTimes {
 public:
  static constexpr std::size_t kMaxCandidates = 8;

  TrialTimes() { reset(); }
  void reset();
  void add(std::size_t candidate, double seconds);
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

  explicit CompressionTrial(std::size_t candidates);

  // What to do before the next call.
  enum class Step { call, compare, conclude };
  Step next();
  // The candidate of the call that next() announced, and whether the call is timed. Before any call: candidate 0.
  std::size_t candidate() const;
  bool is_timed() const;

  // This rank's times; calls that have not ended keep them alive.
  const std::shared_ptr<TrialTimes>& times() const { return times_; }
  // Takes the times that all ranks agreed on; one that is not finite was not measured.
  void conclude(std::span<const double> agreed);

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

}  // namespace qccl::comm
