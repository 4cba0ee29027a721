#include "transport/tcp/connection_trial.h"

#include <gtest/gtest.h>

#include <functional>

namespace qccl::tcp {
namespace {

using std::chrono::milliseconds;

constexpr Nanoseconds kSample = milliseconds(20);
constexpr Nanoseconds kMeasurement = 2 * milliseconds(200);
constexpr Nanoseconds kTrial = 3 * kMeasurement + kSample;
constexpr Nanoseconds kFirst = ConnectionTrial::kStart * kMeasurement + kTrial;  // until the first one has ended

// A line whose rate depends on whether all connections are used.
class Line {
 public:
  // Bytes a sample.
  using Rate = std::function<std::uint64_t(bool uses_all)>;
  explicit Line(Rate rate) : rate_(std::move(rate)) {}

  void run(Nanoseconds time, bool waits = true) {
    for (Nanoseconds left = time; left > Nanoseconds{}; left -= kSample) {
      now_ += kSample;
      const bool before = trial_.uses_all();
      bytes_ += rate_(before);
      trial_.sample(bytes_, waits, now_);
      if (trial_.uses_all() != before) ++changes_;
    }
  }
  ConnectionTrial& trial() { return trial_; }
  int changes() const { return changes_; }

 private:
  Rate rate_;
  ConnectionTrial trial_{milliseconds(10)};
  TimePoint now_{std::chrono::seconds(1)};
  std::uint64_t bytes_ = 0;
  int changes_ = 0;
};

TEST(ConnectionTrial, one_is_used_where_all_carry_no_more) {
  Line line([](bool) { return 1000; });
  EXPECT_FALSE(line.trial().uses_all());
  line.run(kFirst);
  EXPECT_EQ(line.changes(), 2);
  EXPECT_FALSE(line.trial().uses_all());
}

TEST(ConnectionTrial, all_are_used_where_they_carry_more) {
  Line line([](bool uses_all) { return uses_all ? 1300 : 1000; });
  line.run(kFirst);
  EXPECT_TRUE(line.trial().uses_all());
  line.run(milliseconds(1000));
  EXPECT_EQ(line.changes(), 3);
}

TEST(ConnectionTrial, one_is_used_again_once_all_carry_no_more) {
  bool are_limited = true;
  Line line([&](bool uses_all) { return uses_all || !are_limited ? 1000 : 200; });
  line.run(kFirst);
  EXPECT_TRUE(line.trial().uses_all());
  are_limited = false;
  line.run(std::chrono::seconds(120));
  EXPECT_FALSE(line.trial().uses_all());
}

TEST(ConnectionTrial, a_line_that_became_faster_meanwhile_needs_no_more) {
  bool is_slow = true;
  Line line([&](bool uses_all) {
    is_slow &= !uses_all;
    return is_slow ? 100 : 1000;
  });
  line.run(kFirst);
  EXPECT_EQ(line.changes(), 2);
  EXPECT_FALSE(line.trial().uses_all());
}

TEST(ConnectionTrial, trials_become_rarer) {
  Line line([](bool) { return 1000; });
  line.run(std::chrono::seconds(800));  // rests of 6.4 s and twice as long each time, 102 s at most
  EXPECT_GE(line.changes(), 2 * 7);
  EXPECT_LE(line.changes(), 2 * 12);
}

TEST(ConnectionTrial, a_line_that_keeps_no_data_waiting_is_not_tried) {
  Line line([](bool) { return 1000; });
  line.run(10 * kTrial, false);
  EXPECT_EQ(line.changes(), 0);
}

TEST(ConnectionTrial, all_are_used_on_request_and_nothing_is_tried_any_more) {
  Line line([](bool) { return 1000; });
  line.run(kFirst - kTrial / 2);
  line.trial().use_all();
  const int changes = line.changes();
  line.run(100 * kTrial);
  EXPECT_TRUE(line.trial().uses_all());
  EXPECT_EQ(line.changes(), changes);
}

}  // namespace
}  // namespace qccl::tcp
