#include "choice/compression_trial.h"

#include <gtest/gtest.h>

#include <map>

namespace qccl::comm {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// Makes calls, which take these times by candidate, until the trial has concluded.
void run_trial(CompressionTrial& trial, const std::vector<double>& seconds) {
  CompressionTrial::Step step = trial.next();
  for (; step == CompressionTrial::Step::call; step = trial.next()) {
    if (trial.is_timed()) trial.times()->add(trial.candidate(), seconds[trial.candidate()]);
  }
  ASSERT_EQ(step, CompressionTrial::Step::compare);
  std::vector<double> agreed;
  for (std::size_t i = 0; i < seconds.size(); ++i) agreed.push_back(trial.times()->of(i));
  for (step = trial.next(); step == CompressionTrial::Step::call; step = trial.next()) {
    EXPECT_FALSE(trial.is_timed());
  }
  ASSERT_EQ(step, CompressionTrial::Step::conclude);
  trial.conclude(agreed);
}

TEST(CompressionTrial, takes_each_candidate_equally_often_and_times_all_rounds_but_the_first) {
  CompressionTrial trial(3);
  std::map<std::size_t, int> taken, timed;
  while (trial.next() == CompressionTrial::Step::call) {
    ++taken[trial.candidate()];
    if (trial.is_timed()) ++timed[trial.candidate()];
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(taken[i], CompressionTrial::kRounds + 1);
    EXPECT_EQ(timed[i], CompressionTrial::kRounds);
  }
}

TEST(CompressionTrial, takes_the_fastest_candidate_that_saves_enough) {
  constexpr double kLittle = 1 - CompressionTrial::kWorthwhile / 2, kEnough = 1 - CompressionTrial::kWorthwhile * 2;
  const std::pair<std::vector<double>, std::size_t> cases[] = {{{5, 3, 2}, 2}, {{1, kLittle}, 0}, {{1, kEnough}, 1}};
  for (const auto& [seconds, fastest] : cases) {
    CompressionTrial trial(seconds.size());
    run_trial(trial, seconds);
    EXPECT_EQ(trial.candidate(), fastest);
  }
}

TEST(CompressionTrial, keeps_its_choice_if_a_time_is_unknown) {
  CompressionTrial trial(2);
  run_trial(trial, {5, 2});
  run_trial(trial, {1, kUnknown});
  EXPECT_EQ(trial.candidate(), 1u);
}

TEST(CompressionTrial, tries_again_and_changes_its_mind) {
  CompressionTrial trial(2);
  run_trial(trial, {5, 2});
  ASSERT_EQ(trial.candidate(), 1u);
  run_trial(trial, {2, 5});  // in the next trial: until then, calls take the best of the last
  EXPECT_EQ(trial.candidate(), 0u);
}

TEST(CompressionTrial, spends_less_and_less_on_trials) {
  CompressionTrial trial(3);
  int timed = 0;
  constexpr int kCalls = 100'000;
  for (int i = 0; i < kCalls; ++i) {
    if (trial.next() == CompressionTrial::Step::conclude) trial.conclude(std::vector<double>{1, 2, 3});
    timed += trial.is_timed() ? 1 : 0;
  }
  EXPECT_LT(timed, kCalls / 500);
  EXPECT_GT(timed, 5 * 12);
}

TEST(CompressionTrial, forgets_the_times_of_the_last_trial) {
  CompressionTrial trial(2);
  run_trial(trial, {5, 2});
  const auto late = trial.times();
  while (!trial.is_timed()) trial.next();
  late->add(0, 0.001);  // a call of the first trial ends now
  EXPECT_EQ(trial.times()->of(0), kUnknown);
}

TEST(TrialTimes, keep_the_shortest_of_each) {
  TrialTimes times;
  for (const double seconds : {3.0, 1.0, 2.0}) times.add(1, seconds);
  EXPECT_EQ(times.of(1), 1.0);
  EXPECT_EQ(times.of(0), kUnknown);
}

}  // namespace
}  // namespace qccl::comm
