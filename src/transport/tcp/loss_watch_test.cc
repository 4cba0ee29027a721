#include "transport/tcp/loss_watch.h"

#include <gtest/gtest.h>

namespace qccl::tcp {
namespace {

using std::chrono::milliseconds;

os::LossSample sample(std::uint64_t sent, std::uint64_t resent, Nanoseconds round_trip) {
  return {.sent_packets = sent, .resent_packets = resent, .round_trip = round_trip, .shortest = milliseconds(20)};
}

TEST(LossWatch, packets_that_a_full_queue_dropped_are_no_loss_of_the_line) {
  LossWatch watch;
  for (std::uint64_t i = 1; i < 100; ++i) EXPECT_FALSE(watch.is_lossy(sample(1000 * i, 50 * i, milliseconds(30))));
}

TEST(LossWatch, packets_that_are_lost_without_a_queue_are_and_stay_so) {
  LossWatch watch;
  EXPECT_FALSE(watch.is_lossy(sample(1000, LossWatch::kEnough - 1, milliseconds(21))));
  EXPECT_TRUE(watch.is_lossy(sample(2000, LossWatch::kEnough, milliseconds(21))));
  EXPECT_TRUE(watch.is_lossy(sample(9'000'000, LossWatch::kEnough, milliseconds(40))));
}

TEST(LossWatch, a_few_of_very_many_packets_do_not_count) {
  LossWatch watch;
  EXPECT_FALSE(watch.is_lossy(sample(1'000'000, 100, milliseconds(20))));
}

}  // namespace
}  // namespace qccl::tcp
