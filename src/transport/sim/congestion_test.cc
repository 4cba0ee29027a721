#include "transport/sim/congestion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace qccl::sim {
namespace {

using std::chrono::milliseconds;

constexpr Nanoseconds kRoundTrip = milliseconds(20);
constexpr double kRate = 12.5e6;  // bytes a second
constexpr double kBandwidthDelay = kRate * 0.02;

// Rounds of 10 acknowledgements a window, over a line of that rate: they come as fast as it carries the window, and
// what is beyond the bandwidth-delay product waits.
class Rounds {
 public:
  explicit Rounds(Congestion& congestion) : congestion_(congestion) {}

  void run(int rounds, bool is_recovering = false) {
    for (int round = 0; round < rounds; ++round) {
      const double may = std::min(congestion_.window(), congestion_.is_paced() ? congestion_.rate() * 0.02 : 1e12);
      const double sent = std::min(may, most_);
      const Nanoseconds round_trip(static_cast<std::int64_t>(std::max(0.02, sent / kRate) * 1e9));
      const TimePoint begin = now_;
      for (int i = 0; i < 10; ++i) {
        now_ += Nanoseconds(static_cast<std::int64_t>(sent / kRate * 1e8 * spread_));
        congestion_.on_acknowledgement({.now = now_,
                                        .bytes = sent / 10,
                                        .round_trip = round_trip,
                                        .rate = std::min(kRate, sent / 0.02),
                                        .in_flight = 0.9 * sent,
                                        .most_in_flight = sent,
                                        .begins_round = i == 0,
                                        .is_limited = most_ < may,
                                        .fills_window = most_ >= may,
                                        .is_recovering = is_recovering});
      }
      now_ = std::max(now_, begin + round_trip);
    }
  }
  // The sender has no more than that to send.
  void limit(double bytes) { most_ = bytes; }
  // Acknowledgements come so many times as far apart.
  void spread(double times) { spread_ = times; }
  TimePoint now() const { return now_; }

 private:
  Congestion& congestion_;
  TimePoint now_{};
  double most_ = 1e12;
  double spread_ = 1;
};

TEST(Cubic, doubles_in_a_round_trip_until_acknowledgements_take_half_of_one) {
  Cubic cubic(kRoundTrip);
  Rounds rounds(cubic);
  EXPECT_EQ(cubic.window(), 10 * kSegmentBytes);
  rounds.run(2);
  EXPECT_NEAR(cubic.window(), 40 * kSegmentBytes, 1);
  rounds.run(3);
  EXPECT_GT(cubic.window(), kBandwidthDelay / 2);
  EXPECT_LT(cubic.window(), 1.6 * kBandwidthDelay);
}

TEST(Cubic, doubles_until_the_round_trip_shows_a_queue_where_acknowledgements_come_one_by_one) {
  Cubic cubic(milliseconds(200));
  const auto rounds = [&](int count, Nanoseconds round_trip) {
    for (int i = 0; i < 10 * count; ++i) {
      const double sent = cubic.window();
      cubic.on_acknowledgement({.now = TimePoint{} + milliseconds(20 * i),
                                .bytes = sent / 10,
                                .round_trip = round_trip,
                                .most_in_flight = sent,
                                .begins_round = i % 10 == 0,
                                .fills_window = true});
    }
  };
  rounds(6, milliseconds(200));
  const double before = cubic.window();
  EXPECT_GT(before, 200 * kSegmentBytes);
  rounds(2, milliseconds(220));
  EXPECT_LT(cubic.window(), 3.5 * before);
}

TEST(Cubic, grows_by_a_twentieth_in_a_round_trip_after_that_until_a_loss_and_after_a_timeout) {
  Cubic cubic(kRoundTrip);
  Rounds rounds(cubic);
  rounds.run(6);
  const double before = cubic.window();
  rounds.run(4);
  EXPECT_NEAR(std::log(cubic.window() / before) / 4, 0.05, 0.01);
  cubic.on_loss(cubic.window());
  cubic.on_recovered();
  const double after = cubic.window();
  rounds.run(4);
  EXPECT_LT(cubic.window(), 1.1 * after);
}

TEST(Cubic, falls_to_seven_tenths_after_a_loss_and_is_back_after_the_curves_time) {
  Cubic cubic(kRoundTrip);
  Rounds rounds(cubic);
  rounds.run(12);
  const double before = cubic.window();
  cubic.on_loss(before);
  rounds.run(1, true);
  cubic.on_recovered();
  EXPECT_NEAR(cubic.window() / before, 0.7, 1e-9);
  const double back = std::cbrt(0.3 * before / kSegmentBytes / 0.4);  // seconds
  const double round = std::max(0.02, 0.85 * before / kRate);
  rounds.run(static_cast<int>(0.7 * back / round));
  EXPECT_LT(cubic.window(), before);
  EXPECT_GT(cubic.window(), 0.85 * before);
  rounds.run(static_cast<int>(1.5 * back / round));
  EXPECT_GT(cubic.window(), before);
}

TEST(Cubic, a_recovery_sends_less_than_it_hears_of) {
  Cubic cubic(kRoundTrip);
  Rounds rounds(cubic);
  rounds.run(12);
  const double before = cubic.window();
  cubic.on_loss(before);
  double in_flight = before, sent = 0, heard = 0;
  while (in_flight > 0.71 * before) {
    in_flight -= 0.01 * before;
    heard += 0.01 * before;
    cubic.on_acknowledgement({.bytes = 0.01 * before, .in_flight = in_flight, .is_recovering = true});
    const double room = std::max(0.0, cubic.window() - in_flight);
    cubic.on_sent(room);
    in_flight += room;
    sent += room;
  }
  EXPECT_NEAR(sent / heard, 0.7, 0.05);
}

TEST(Cubic, begins_again_with_a_segment_after_a_timeout) {
  Cubic cubic(kRoundTrip);
  Rounds rounds(cubic);
  rounds.run(12);
  const double before = cubic.window();
  cubic.on_timeout();
  EXPECT_EQ(cubic.window(), kSegmentBytes);
  rounds.run(20);
  EXPECT_GT(cubic.window(), 0.6 * before);
}

TEST(Cubic, keeps_a_window_that_the_sender_does_not_fill) {
  Cubic cubic(kRoundTrip);
  Rounds rounds(cubic);
  rounds.run(12);
  const double before = cubic.window();
  rounds.limit(before / 3);
  rounds.run(50);
  EXPECT_EQ(cubic.window(), before);
}

TEST(Cubic, gives_up_half_of_what_it_did_not_use_for_a_timeout) {
  Cubic cubic(kRoundTrip);
  Rounds rounds(cubic);
  rounds.run(12);
  const double before = cubic.window();
  const TimePoint now = rounds.now();
  const Use little{.now = now, .in_flight = before / 4, .most_in_flight = before / 4, .timeout = milliseconds(220)};
  const auto use = [&](Use some, Nanoseconds after) {
    some.now += after;
    cubic.on_use(some);
    return cubic.window() / before;
  };
  Use all = little;
  all.fills_window = true;
  EXPECT_EQ(use(all, {}), 1);
  EXPECT_EQ(use(little, milliseconds(200)), 1);
  Use lossy = little;
  lossy.has_losses = true;
  EXPECT_EQ(use(lossy, milliseconds(230)), 1);
  EXPECT_EQ(use(little, milliseconds(400)), 1);
  EXPECT_NEAR(use(little, milliseconds(460)), 0.625, 1e-9);
}

TEST(Cubic, halves_its_window_for_each_timeout_without_data_down_to_the_first_one) {
  Cubic cubic(kRoundTrip);
  Rounds rounds(cubic);
  rounds.run(12);
  const double before = cubic.window();
  const Nanoseconds timeout = milliseconds(220);
  cubic.on_start(rounds.now(), milliseconds(220), timeout);
  EXPECT_EQ(cubic.window(), before);
  cubic.on_start(rounds.now(), milliseconds(230), timeout);
  EXPECT_EQ(cubic.window(), before / 2);
  cubic.on_start(rounds.now(), std::chrono::seconds(10), timeout);
  EXPECT_EQ(cubic.window(), 10 * kSegmentBytes);
}

TEST(Bbr, finds_the_rate_and_lets_twice_the_bandwidth_delay_product_go) {
  Bbr bbr(kRoundTrip, 0);
  Rounds rounds(bbr);
  rounds.run(1);
  EXPECT_NEAR(bbr.rate() / (10 * kSegmentBytes / 0.02), 2.885, 0.1);
  rounds.run(40);
  EXPECT_GE(bbr.rate(), 0.75 * kRate);
  EXPECT_LE(bbr.rate(), 1.25 * kRate);
  EXPECT_NEAR(bbr.window() / kBandwidthDelay, 2, 0.3);
}

TEST(Bbr, goes_through_a_cycle_of_rates) {
  Bbr bbr(kRoundTrip, 0);
  Rounds rounds(bbr);
  rounds.run(40);
  int above = 0, below = 0, even = 0;
  for (int i = 0; i < 80; ++i) {
    rounds.run(1);
    const double gain = bbr.rate() / kRate;
    (gain > 1.1 ? above : gain < 0.9 ? below : even) += 1;
  }
  EXPECT_GE(above, 5);
  EXPECT_GE(below, 5);
  EXPECT_GT(even, above + below);
}

TEST(Bbr, has_its_window_again_after_a_loss_and_after_a_timeout) {
  Bbr bbr(kRoundTrip, 0);
  Rounds rounds(bbr);
  rounds.run(40);
  const double before = bbr.window();
  bbr.on_loss(before / 2);
  EXPECT_EQ(bbr.window(), before / 2);
  bbr.on_recovered();
  EXPECT_EQ(bbr.window(), before);
  bbr.on_timeout();
  EXPECT_EQ(bbr.window(), kSegmentBytes);
  bbr.on_recovered();
  EXPECT_EQ(bbr.window(), before);
}

TEST(Bbr, forgets_a_rate_after_ten_rounds_but_not_for_want_of_data) {
  Bbr bbr(kRoundTrip, 0);
  Rounds rounds(bbr);
  rounds.run(40);
  const double window = bbr.window();
  rounds.limit(window / 8);
  rounds.run(50);
  EXPECT_NEAR(bbr.window() / window, 1, 0.05);
}

}  // namespace
}  // namespace qccl::sim
