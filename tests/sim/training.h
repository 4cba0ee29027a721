// Training that loses ranks, over the simulated network: each step sums two buckets of gradients in place, compressed,
// with error feedback. Ranks act alone, as processes do: one whose call fails shrinks its group, settles with the other
// members on the step of the one that is ahead, and goes on with the gradients that the failed call gave back. At the
// end of the training each leaves.
//
// Checked: every rank that runs has a verdict by the deadline of each call; no two groups go on; failed calls give
// their input back; what was applied and what all ranks hold back adds up to what was put in.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/random_faults.h"
#include "support/sim_call.h"

namespace qccl::testing {

struct TrainingCounts {
  FaultCounts faults;
  int shrinks = 0;        // verdicts
  int disagreements = 0;  // ranks that failed in a step that another had ended well
  int left_out = 0;       // ranks that lived
  int given_up = 0;       // trainings that too few ranks were left for
};

using Buckets = std::vector<std::vector<float>>;

// What the ranks put in, and how it is summed.
class Gradients {
 public:
  static constexpr int kBuckets = 2;
  Gradients(Random& random, std::size_t most_elements);

  std::size_t count() const { return count_; }  // of a bucket
  std::vector<float> of(int rank, std::size_t step, int bucket) const;
  engine::ResolvedCall call(std::size_t world) const;
  // What a bucket's result is multiplied by to get the sum of the inputs.
  double factor(std::size_t world) const { return options_.op == ReduceOp::avg ? static_cast<double>(world) : 1; }

 private:
  const std::size_t count_;
  CallOptions options_;
};

// A step that a rank has applied.
struct TrainingStep {
  std::vector<int> members;
  Buckets sums;
  friend bool operator==(const TrainingStep&, const TrainingStep&) = default;
};

enum class TrainerPhase : std::uint8_t { steps, shrinks, settles, ends, has_left, is_out };

// A rank.
struct Trainer {
  TrainerPhase phase = TrainerPhase::steps;
  std::uint64_t group = kSimGroup;
  std::vector<int> members;
  TimePoint deadline{};
  TimePoint pauses_until{};
  std::vector<SimWork> works;  // of this phase
  SimWorld::Shrinking shrinking;
  std::uint64_t number = 0;                     // the buffer of small calls
  std::map<std::uint64_t, std::uint64_t> told;  // its step, when it settled in each group
  std::vector<TrainingStep> done;
  std::vector<ErrorFeedback> feedback;  // of each bucket, which has a call of its own
  Buckets gradients;
  std::map<std::size_t, Buckets> residuals;  // before each step, for ranks that die

  bool has_ended() const { return phase == TrainerPhase::has_left || phase == TrainerPhase::is_out; }
  // What the rank owes after so many steps: it may have been lost in the last of them, or in the one after those.
  std::vector<float> residual_after(std::size_t steps, int bucket) const;
};

// What is wrong with what all have applied and hold back, or "". `done`: by a rank that has come to the end.
std::string check_conservation(const std::vector<TrainingStep>& done, const std::vector<Trainer>& trainers,
                               const Gradients& gradients);

class Training {
 public:
  Training(std::uint64_t seed, int steps, FaultKinds kinds);

  // Returns what went wrong, or "".
  std::string run();
  TrainingCounts counts() const;

 private:
  Trainer& trainer(int rank) { return trainers_[static_cast<std::size_t>(rank)]; }
  void run_ranks();
  bool may_act(int rank);
  bool is_over();
  void let_time_pass();
  void look_for_hanging();
  void expect_time(Trainer& trainer, Nanoseconds timeout);

  // Each begins a phase, whose works end in act().
  void begin_step(int rank);
  void begin_shrink(int rank);
  void begin_number(int rank, TrainerPhase phase, std::uint64_t number);
  void act(int rank);
  void end_step(int rank);
  void end_shrink(int rank);
  void settle(int rank);
  void leave(int rank, TrainerPhase phase);
  std::string check();

  Random random_;
  SimWorld world_;
  const std::size_t steps_;
  const FaultKinds kinds_;
  const Gradients gradients_;
  std::vector<Trainer> trainers_;
  RandomFaults faults_;
  std::map<std::uint64_t, std::map<int, std::vector<int>>> successors_;  // of each group, as each rank was told
  TrainingCounts counts_;
  std::string problem_;
};

}  // namespace qccl::testing
