#include "engine/state/line_peak.h"

#include <gtest/gtest.h>

namespace qccl::engine {
namespace {

using std::chrono::milliseconds;

// A line that is sampled every 20 ms, in windows of 40 ms.
class Windows {
 public:
  void carry(std::uint64_t bytes_a_second, int samples) {
    for (int i = 0; i < samples; ++i) {
      bytes += bytes_a_second / 50;
      now += milliseconds(20);
      peak.sample(bytes, now, milliseconds(40));
    }
  }
  LinePeak peak;
  std::uint64_t bytes = 0;
  TimePoint now = TimePoint(std::chrono::seconds(1));
};

TEST(LinePeak, is_the_most_of_three_windows_in_a_row_once_enough_has_passed) {
  Windows line;
  line.carry(10'000'000, 10);
  EXPECT_EQ(line.peak.rate(), 0);
  line.carry(100'000'000, 8);
  line.carry(10'000'000, 40);
  EXPECT_NEAR(line.peak.rate(), 100e6, 15e6);
}

TEST(LinePeak, bytes_that_were_held_up_and_come_together_are_no_peak) {
  Windows line;
  line.carry(100'000'000, 40);
  line.carry(0, 10);
  line.carry(500'000'000, 2);
  line.carry(100'000'000, 40);
  EXPECT_NEAR(line.peak.rate(), 100e6, 1e6);
}

TEST(LinePeak, a_line_that_gets_slower_is_seen_but_one_that_rests_or_is_out_keeps_its_peak) {
  Windows line;
  line.carry(100'000'000, 40);
  line.carry(1'000, 10'000);
  EXPECT_NEAR(line.peak.rate(), 100e6, 1e6);
  line.carry(0, 10'000);
  EXPECT_NEAR(line.peak.rate(), 100e6, 1e6);
  line.carry(10'000'000, 6000);
  EXPECT_NEAR(line.peak.rate(), 10e6, 1e6);
}

TEST(LinePeak, bytes_of_a_peer_that_was_lost_since_do_not_count_backwards) {
  Windows line;
  line.carry(100'000'000, 40);
  line.bytes = 0;
  line.carry(100'000'000, 8);
  EXPECT_NEAR(line.peak.rate(), 100e6, 3e6);
}

}  // namespace
}  // namespace qccl::engine
