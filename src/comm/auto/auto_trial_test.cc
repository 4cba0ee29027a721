#include "comm/auto/auto_trial.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <vector>

namespace qccl::comm {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// Makes calls until the trial wants to compare, then until it wants to conclude, with these times of each candidate.
void run_trial(AutoTrial& trial, const std::vector<double>& seconds) {
  AutoTrial::Todo todo = trial.next();
  for (; todo == AutoTrial::Todo::call; todo = trial.next()) {
    if (trial.is_timed()) trial.times()->add(trial.candidate(), seconds[trial.candidate()]);
  }
  ASSERT_EQ(todo, AutoTrial::Todo::compare);
  std::vector<double> agreed;
  for (std::size_t i = 0; i < seconds.size(); ++i) agreed.push_back(trial.times()->of(i));
  for (todo = trial.next(); todo == AutoTrial::Todo::call; todo = trial.next()) {
    EXPECT_FALSE(trial.is_timed());
  }
  ASSERT_EQ(todo, AutoTrial::Todo::conclude);
  trial.conclude(agreed);
}

TEST(AutoTrial, takes_each_candidate_equally_often_and_times_all_turns_but_the_first) {
  AutoTrial trial(3);
  std::map<std::size_t, int> taken, timed;
  while (trial.next() == AutoTrial::Todo::call) {
    ++taken[trial.candidate()];
    if (trial.is_timed()) ++timed[trial.candidate()];
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(taken[i], AutoTrial::kTurns + 1);
    EXPECT_EQ(timed[i], AutoTrial::kTurns);
  }
}

TEST(AutoTrial, takes_the_fastest) {
  AutoTrial trial(3);
  run_trial(trial, {5, 3, 2});
  EXPECT_EQ(trial.candidate(), 2u);
}

TEST(AutoTrial, keeps_to_the_first_unless_another_saves_enough) {
  AutoTrial trial(2);
  run_trial(trial, {1, 1 - AutoTrial::kWorthwhile / 2});
  EXPECT_EQ(trial.candidate(), 0u);
  AutoTrial other(2);
  run_trial(other, {1, 1 - AutoTrial::kWorthwhile * 2});
  EXPECT_EQ(other.candidate(), 1u);
}

TEST(AutoTrial, goes_on_as_before_where_a_time_is_not_known) {
  AutoTrial trial(2);
  run_trial(trial, {5, 2});
  for (std::uint64_t i = 0; i < AutoTrial::kLastPeriod; ++i) {
    const auto todo = trial.next();
    if (todo != AutoTrial::Todo::conclude) continue;
    trial.conclude(std::vector<double>{1, kUnknown});
    break;
  }
  EXPECT_EQ(trial.candidate(), 1u);
}

TEST(AutoTrial, tries_again_and_changes_its_mind) {
  AutoTrial trial(2);
  run_trial(trial, {5, 2});
  ASSERT_EQ(trial.candidate(), 1u);
  run_trial(trial, {2, 5});  // from the next trial on: the rest of the period takes what was best
  EXPECT_EQ(trial.candidate(), 0u);
}

TEST(AutoTrial, spends_less_and_less_on_trials) {
  AutoTrial trial(3);
  int timed = 0;
  constexpr int kCalls = 100'000;
  for (int i = 0; i < kCalls; ++i) {
    if (trial.next() == AutoTrial::Todo::conclude) trial.conclude(std::vector<double>{1, 2, 3});
    timed += trial.is_timed() ? 1 : 0;
  }
  EXPECT_LT(timed, kCalls / 500);
  EXPECT_GT(timed, 5 * 12);
}

TEST(AutoTrial, forgets_the_times_of_the_last_trial) {
  AutoTrial trial(2);
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
