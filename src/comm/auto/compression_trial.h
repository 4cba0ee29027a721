// The trial of candidates in the calls of one class: which candidate each call takes, and what the calls showed.
//
// A trial goes by the number of the call alone, so that all ranks take the same candidate: each candidate in turn, some
// times; then the ranks compare their times by a small all_reduce, which has kLag calls to come back; then the calls
// take the fastest, until the next trial. The first turn of all is not timed. Periods between trials double.
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
  static constexpr std::size_t kMost = 8;

  TrialTimes() { reset(); }
  void reset();
  void add(std::size_t candidate, double seconds);
  // Infinity where no call has ended yet.
  double of(std::size_t candidate) const { return shortest_[candidate].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<double>, kMost> shortest_;
};

// One thread at a time.
class CompressionTrial {
 public:
  static constexpr int kTurns = 4;          // of each candidate in a trial
  static constexpr std::uint64_t kLag = 8;  // calls
  static constexpr std::uint64_t kFirstPeriod = 512;
  static constexpr std::uint64_t kLastPeriod = 16384;
  // Candidate 0, which loses nothing, gives way only to what saves that much.
  static constexpr double kWorthwhile = 0.03;

  explicit CompressionTrial(std::size_t candidates);

  // What to do before the next call.
  enum class Todo { call, compare, conclude };
  Todo next();
  // What the call that next() announced takes, and whether it is timed.
  std::size_t candidate() const;
  bool is_timed() const;

  // This rank's times; kept alive by calls that are under way.
  const std::shared_ptr<TrialTimes>& times() const { return times_; }
  // With the times that all ranks agreed on; one that is not finite was not measured.
  void conclude(std::span<const double> agreed);

 private:
  std::uint64_t trial_calls() const { return static_cast<std::uint64_t>(turns_) * candidates_; }
  bool in_trial() const { return call_ <= trial_calls(); }

  const std::size_t candidates_;
  std::shared_ptr<TrialTimes> times_ = std::make_shared<TrialTimes>();
  int turns_ = kTurns + 1;  // of the first trial
  std::uint64_t period_ = kFirstPeriod;
  std::uint64_t call_ = 0;  // since the trial began, the first is 1
  std::size_t best_ = 0;
};

}  // namespace qccl::comm
