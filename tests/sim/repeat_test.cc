// Random trainings that lose ranks (training.h), from a seed. A failure prints the command that replays it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "sim/training.h"
#include "support/long_run.h"

namespace qccl::testing {
namespace {

constexpr std::uint64_t kFirstSeed = 20261126;

void add(TrainingCounts& sum, const TrainingCounts& counts) {
  sum.faults.kills += counts.faults.kills;
  sum.faults.stops += counts.faults.stops;
  sum.faults.cuts += counts.faults.cuts;
  sum.faults.slow += counts.faults.slow;
  sum.shrinks += counts.shrinks;
  sum.disagreements += counts.disagreements;
  sum.left_out += counts.left_out;
  sum.given_up += counts.given_up;
}

// REPEAT_PROGRAMS says how many, REPEAT_SEED the first seed.
TrainingCounts run_trainings(std::uint64_t number, int steps, FaultKinds kinds) {
  const std::uint64_t first = environment_number("REPEAT_SEED", kFirstSeed);
  TrainingCounts sum;
  Progress progress(number);
  for (std::uint64_t seed = first; seed < first + number && !::testing::Test::HasFailure(); ++seed) {
    Training training(seed, steps, kinds);
    EXPECT_EQ(training.run(), "") << "to replay: REPEAT_PROGRAMS=1 REPEAT_SEED=" << seed
                                  << " build/tests/qccl_test_sim --gtest_filter='*"
                                  << ::testing::UnitTest::GetInstance()->current_test_info()->name() << "'";
    add(sum, training.counts());
    progress.count_one();
  }
  return sum;
}

TEST(Repeat, over_a_thousand_steps_of_kills_what_was_applied_and_what_is_held_back_add_up) {
  const std::uint64_t trainings = environment_number("REPEAT_PROGRAMS", 60);
  const TrainingCounts sum = run_trainings(trainings, 20, FaultKinds::kills);
  if (trainings < 60) return;
  EXPECT_GT(sum.faults.kills, 60);
  EXPECT_GT(sum.disagreements, 0) << "no rank saw a call end well that failed on another";
}

TEST(Repeat, of_random_faults_gives_each_rank_a_verdict_and_loses_nothing) {
  const std::uint64_t trainings = environment_number("REPEAT_PROGRAMS", 150);
  const TrainingCounts sum = run_trainings(trainings, 8, FaultKinds::all);
  std::printf(
      "%d kills, %d stops, %d cuts, %d slow ranks; %d verdicts of shrink(), %d ranks were behind, %d out; "
      "%d trainings given up\n",
      sum.faults.kills, sum.faults.stops, sum.faults.cuts, sum.faults.slow, sum.shrinks, sum.disagreements,
      sum.left_out, sum.given_up);
  if (trainings < 150) return;
  for (const int hits : {sum.faults.kills, sum.faults.stops, sum.faults.cuts, sum.faults.slow}) EXPECT_GT(hits, 10);
  EXPECT_GT(sum.shrinks, 200);
  EXPECT_GT(sum.disagreements, 0) << "no rank saw a call end well that failed on another";
  EXPECT_LT(sum.given_up * 4, static_cast<int>(trainings)) << "most trainings should go on";
}

}  // namespace
}  // namespace qccl::testing
