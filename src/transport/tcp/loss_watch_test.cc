#include "transport/tcp/loss_watch.h"

#include <gtest/gtest.h>

namespace qccl::tcp {
namespace {

using std::chrono::milliseconds;

// A connection whose shortest round trip is 20 ms; `resent` more packets of 1000 with each sample.
class Samples {
 public:
  bool are_lossy(int samples, std::uint64_t resent, Nanoseconds round_trip) {
    bool is_lossy = false;
    for (int i = 0; i < samples; ++i) {
      sent_ += 1000;
      resent_ += resent;
      is_lossy = watch_.is_lossy(
          {.sent_packets = sent_, .resent_packets = resent_, .round_trip = round_trip, .shortest = milliseconds(20)});
    }
    return is_lossy;
  }

 private:
  LossWatch watch_;
  std::uint64_t sent_ = 0;
  std::uint64_t resent_ = 0;
};

TEST(LossWatch, packets_that_a_full_queue_dropped_are_no_loss_of_the_line) {
  Samples samples;
  EXPECT_FALSE(samples.are_lossy(200, 50, milliseconds(31)));
}

TEST(LossWatch, nor_are_those_that_are_sent_again_after_the_queue_has_emptied) {
  Samples samples;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(samples.are_lossy(1, 0, milliseconds(31)));
    EXPECT_FALSE(samples.are_lossy(LossWatch::kPatience - 1, 50, milliseconds(20)));
  }
}

TEST(LossWatch, packets_that_are_lost_without_a_queue_are_and_stay_so) {
  Samples samples;
  EXPECT_FALSE(samples.are_lossy(LossWatch::kPatience, 0, milliseconds(21)));
  EXPECT_FALSE(samples.are_lossy(1, LossWatch::kEnough - 1, milliseconds(21)));
  EXPECT_TRUE(samples.are_lossy(1, 1, milliseconds(21)));
  EXPECT_TRUE(samples.are_lossy(1000, 0, milliseconds(40)));
}

TEST(LossWatch, a_few_of_very_many_packets_do_not_count) {
  Samples samples;
  EXPECT_FALSE(samples.are_lossy(1000, 0, milliseconds(20)));
  EXPECT_FALSE(samples.are_lossy(1, 100, milliseconds(20)));
}

}  // namespace
}  // namespace qccl::tcp
