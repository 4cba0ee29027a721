#include "engine/state/line_meter.h"

#include <gtest/gtest.h>

namespace qccl::engine {
namespace {

using std::chrono::milliseconds;

// A line that is sampled every 100 ms.
class Line {
 public:
  Line() { meter.set_round_trip(milliseconds(400)); }
  // `bytes` are acknowledged by the next sample, at which data waits or not.
  void deliver(std::uint64_t bytes, bool waits) {
    acknowledged += bytes;
    meter.sample(acknowledged, waits, now);
    now += milliseconds(100);
  }
  LineMeter meter;
  std::uint64_t acknowledged = 0;
  TimePoint now = TimePoint(std::chrono::seconds(1));
};

TEST(LineMeter, measures_nothing_between_near_ranks) {
  LineMeter meter;
  EXPECT_EQ(meter.next(), kForever);
  meter.set_round_trip(milliseconds(100));
  EXPECT_LT(meter.next(), kForever);
  meter.set_round_trip({});
  EXPECT_EQ(meter.next(), kForever);
  EXPECT_EQ(meter.rate(), 0);
}

TEST(LineMeter, samples_four_times_a_round_trip_but_at_most_every_20_ms) {
  LineMeter meter;
  const TimePoint now(std::chrono::seconds(5));
  meter.set_round_trip(milliseconds(2));
  meter.sample(0, false, now);
  EXPECT_EQ(meter.next(), now + milliseconds(20));
  meter.set_round_trip(milliseconds(100));
  meter.sample(0, false, now);
  EXPECT_EQ(meter.next(), now + milliseconds(25));
}

TEST(LineMeter, learns_the_rate_while_data_waits) {
  Line line;
  for (int i = 0; i < 40; ++i) line.deliver(10'000'000, true);
  EXPECT_NEAR(line.meter.rate(), 100e6, 1e6);
}

TEST(LineMeter, knows_no_rate_before_data_has_waited_several_times) {
  Line line;
  for (int i = 0; i < 40; ++i) line.deliver(1'000'000, i % 2 == 1);
  EXPECT_EQ(line.meter.rate(), 0);
  for (int call = 0; call < 8; ++call) {
    EXPECT_EQ(line.meter.rate(), 0) << call;
    for (int i = 0; i < 3; ++i) line.deliver(10'000'000, true);
    line.deliver(1'000'000, false);
  }
  EXPECT_NEAR(line.meter.rate(), 100e6, 1e6);
}

TEST(LineMeter, evens_out_bursts_of_acknowledgements) {
  Line line;
  for (int i = 0; i < 400; ++i) line.deliver(i % 4 == 0 ? 40'000'000 : 0, true);
  EXPECT_NEAR(line.meter.rate(), 100e6, 1e6);
}

TEST(LineMeter, a_short_call_does_not_slow_the_line_down) {
  Line line;
  for (int i = 0; i < 40; ++i) line.deliver(10'000'000, true);
  for (int i = 0; i < 400; ++i) line.deliver(1'000'000, false);
  EXPECT_NEAR(line.meter.rate(), 100e6, 1e6);
}

TEST(LineMeter, data_that_waits_at_one_end_of_a_sample_alone_does_not_slow_the_line_down) {
  Line line;
  for (int i = 0; i < 40; ++i) line.deliver(10'000'000, true);
  for (int i = 0; i < 400; ++i) line.deliver(1'000'000, i % 2 == 1);
  EXPECT_NEAR(line.meter.rate(), 100e6, 1e6);
}

TEST(LineMeter, a_line_that_gets_slower_is_seen_while_data_waits) {
  Line line;
  for (int i = 0; i < 40; ++i) line.deliver(10'000'000, true);
  for (int i = 0; i < 480; ++i) line.deliver(1'000'000, true);
  EXPECT_NEAR(line.meter.rate(), 10e6, 1e6);
}

TEST(LineMeter, a_faster_round_trip_counts_though_nothing_waits_and_one_alone_by_half) {
  Line line;
  for (int i = 0; i < 40; ++i) line.deliver(10'000'000, true);
  line.deliver(10'000'000, false);  // the last of a round trip
  for (int i = 0; i < 4; ++i) line.deliver(20'000'000, false);
  EXPECT_NEAR(line.meter.rate(), 150e6, 1e6);
}

TEST(LineMeter, bytes_of_a_peer_that_was_lost_since_do_not_count_backwards) {
  Line line;
  for (int i = 0; i < 40; ++i) line.deliver(10'000'000, true);
  line.acknowledged = 0;
  line.deliver(0, true);
  EXPECT_NEAR(line.meter.rate(), 100e6, 1e6);
}

}  // namespace
}  // namespace qccl::engine
