// The trials of a group's calls with automatic compression: one (comm/auto/compression_trial.h) for each class of call.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "codec/registry.h"
#include "comm/auto/compression_trial.h"
#include "comm/resolve/algorithm_table.h"
#include "qccl/communicator.h"

namespace qccl::comm {

// The trial of one class. One thread at a time. Ranks that make the same calls in the same order take the same
// candidates.
struct ClassTrial {
  explicit ClassTrial(const CallClass& call)
      : candidates(candidates_of(call.compression)), has_root(is_rooted(call.collective)), trial(candidates.size()) {}

  const Compression& current() const { return candidates[trial.candidate()]; }
  // This rank's times, for the all_reduce by which the ranks compare theirs. The fastest rank's count: it came last and
  // waited for no other. With a root, the slowest's: the others only send, or only receive.
  std::span<double> measured() {
    times.resize(candidates.size());
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = trial.times()->of(i);
    return times;
  }
  CallOptions comparison_options() const {
    return {.op = has_root ? ReduceOp::max : ReduceOp::min, .compression = none(), .algorithm = Algorithm::one_shot};
  }

  std::vector<Compression> candidates;
  bool has_root;
  CompressionTrial trial;
  std::vector<double> times;                          // what the ranks compare, until the trial concludes
  std::shared_ptr<internal::WorkState> comparison{};  // the call that compares them
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
