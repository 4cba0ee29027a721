#include "transport/tcp/connection_trial.h"

#include <gtest/gtest.h>

#include <functional>

namespace qccl::tcp {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMost = 6;
constexpr Nanoseconds kSample = milliseconds(20);
constexpr Nanoseconds kMeasurement = 2 * milliseconds(200);
constexpr Nanoseconds kTrial = 3 * kMeasurement + kSample;
constexpr Nanoseconds kFirst = ConnectionTrial::kStart * kMeasurement + kTrial;  // until the first one has ended

// A line whose rate depends on the number of connections.
class Line {
 public:
  // Bytes a sample.
  using Rate = std::function<std::uint64_t(std::size_t used)>;
  explicit Line(Rate rate) : rate_(std::move(rate)) {}

  void run(Nanoseconds time, bool waits = true) {
    for (Nanoseconds left = time; left > Nanoseconds{}; left -= kSample) {
      now_ += kSample;
      const std::size_t before = trial_.used();
      bytes_ += rate_(before);
      const bool is_limited = before < limited_below_;
      progress_.acknowledged = bytes_;
      progress_.waits = waits;
      progress_.busy += before * kSample;
      if (is_limited) progress_.limited += before * kSample;
      if (loses_) ++progress_.resent;
      trial_.sample(progress_, now_);
      if (trial_.used() != before) ++changes_;
    }
  }
  void run_until(std::size_t used) {
    for (int i = 0; i < 100'000 && trial_.used() != used; ++i) run(kSample);
    ASSERT_EQ(trial_.used(), used);
  }
  ConnectionTrial& trial() { return trial_; }
  int changes() const { return changes_; }
  // Buffers limit fewer connections.
  void limit_below(std::size_t connections) { limited_below_ = connections; }
  void lose() { loses_ = true; }

 private:
  Rate rate_;
  ConnectionTrial trial_{milliseconds(10), kMost};
  TimePoint now_{std::chrono::seconds(1)};
  std::uint64_t bytes_ = 0;
  LinkProgress progress_;
  std::size_t limited_below_ = 0;
  bool loses_ = false;
  int changes_ = 0;
};

// Each connection carries `rate` on a line of 1000.
Line::Rate limited_to(std::size_t rate) {
  return [=](std::size_t used) { return std::min<std::uint64_t>(1000, rate * used); };
}

TEST(ConnectionTrial, one_is_used_where_all_carry_no_more) {
  Line line(limited_to(1000));
  EXPECT_EQ(line.trial().used(), 1);
  line.run_until(kMost);
  line.run(kTrial);
  EXPECT_EQ(line.changes(), 2);
  EXPECT_EQ(line.trial().used(), 1);
}

TEST(ConnectionTrial, all_are_used_where_they_carry_more) {
  Line line(limited_to(250));
  line.run(kFirst);
  EXPECT_EQ(line.trial().used(), kMost);
}

TEST(ConnectionTrial, one_is_used_again_once_several_carry_no_more) {
  std::size_t rate = 250;
  Line line([&](std::size_t used) { return limited_to(rate)(used); });
  line.run(kFirst);
  ASSERT_EQ(line.trial().used(), kMost);
  rate = 1000;
  line.run(std::chrono::seconds(120));
  EXPECT_EQ(line.trial().used(), 1);
}

TEST(ConnectionTrial, a_line_that_became_faster_meanwhile_needs_no_more) {
  bool is_slow = true;
  Line line([&](std::size_t used) {
    is_slow &= used == 1;
    return is_slow ? 100 : 1000;
  });
  line.run(kFirst);
  EXPECT_EQ(line.changes(), 2);
  EXPECT_EQ(line.trial().used(), 1);
}

TEST(ConnectionTrial, all_are_given_up_early_where_they_carry_less) {
  Line line([](std::size_t used) { return used == 1 ? 1000 : 600; });
  line.run_until(kMost);
  line.run(milliseconds(200) / ConnectionTrial::kEarly + kSample);
  EXPECT_EQ(line.trial().used(), 1);
  line.run(std::chrono::seconds(5));
  EXPECT_EQ(line.changes(), 2);
}

TEST(ConnectionTrial, one_is_given_up_early_where_it_carries_less) {
  Line line(limited_to(250));
  line.run(kFirst);
  ASSERT_EQ(line.trial().used(), kMost);
  line.run_until(1);
  line.run(milliseconds(200) / ConnectionTrial::kEarly + kSample);
  EXPECT_EQ(line.trial().used(), kMost);
}

TEST(ConnectionTrial, as_many_are_used_as_buffers_do_not_limit) {
  Line line(limited_to(250));
  line.limit_below(4);
  line.run(kMeasurement);
  EXPECT_EQ(line.trial().used(), 4);
  EXPECT_EQ(line.changes(), 2);
}

TEST(ConnectionTrial, buffers_of_connections_that_lose_packets_say_nothing) {
  Line line(limited_to(1000));
  line.limit_below(4);
  line.lose();
  line.run(kMeasurement);
  EXPECT_EQ(line.trial().used(), 1);
}

TEST(ConnectionTrial, trials_become_rarer) {
  Line line(limited_to(1000));
  line.run(std::chrono::seconds(800));  // rests of 6.4 s and twice as long each time, 102 s at most
  EXPECT_GE(line.changes(), 2 * 7);
  EXPECT_LE(line.changes(), 2 * 12);
}

TEST(ConnectionTrial, a_line_that_keeps_no_data_waiting_is_not_tried) {
  Line line(limited_to(1000));
  line.run(10 * kTrial, false);
  EXPECT_EQ(line.changes(), 0);
}

TEST(ConnectionTrial, a_peer_with_one_connection_is_not_tried) {
  ConnectionTrial trial(milliseconds(10), 1);
  for (int i = 1; i < 1000; ++i) trial.sample({.acknowledged = 1000u * i, .waits = true}, TimePoint{} + i * kSample);
  EXPECT_EQ(trial.used(), 1);
}

TEST(ConnectionTrial, all_are_used_on_request_and_nothing_is_tried_any_more) {
  Line line(limited_to(1000));
  line.run(kFirst - kTrial / 2);
  line.trial().use_all();
  const int changes = line.changes();
  line.run(100 * kTrial);
  EXPECT_EQ(line.trial().used(), kMost);
  EXPECT_EQ(line.changes(), changes);
}

}  // namespace
}  // namespace qccl::tcp
