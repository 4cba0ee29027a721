#include "engine/state/line_capacity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

namespace qccl::engine {
namespace {

constexpr double kFilling = LineCapacity::kFilling;

using std::chrono::milliseconds;
using std::chrono::seconds;

// A rank with three peers, 20 ms away, that is sampled every 20 ms.
class ThreePeers {
 public:
  // Each peer acknowledges its bytes a second; data waits for those that are named.
  void carry(std::array<double, 3> rates, std::initializer_list<int> waits, int samples) {
    for (int i = 0; i < samples; ++i) {
      now_ += milliseconds(20);
      for (std::size_t peer = 0; peer < rates.size(); ++peer) {
        bytes[peer] += rates[peer] / 50;
        const bool waits_for_it = std::ranges::find(waits, static_cast<int>(peer)) != waits.end();
        capacity.sample(peer, static_cast<std::uint64_t>(bytes[peer]), waits_for_it, milliseconds(20), now_);
      }
      capacity.step(resent, now_);
    }
  }
  LineCapacity capacity{3};
  std::array<double, 3> bytes{};
  std::uint64_t resent = 0;

 private:
  TimePoint now_ = TimePoint(seconds(1));
};

TEST(LineCapacity, is_unknown_until_data_has_waited_for_long_enough) {
  ThreePeers line;
  line.carry({4e6, 4e6, 4e6}, {}, 1000);
  EXPECT_EQ(line.capacity.rate(), 0);
  line.carry({4e6, 4e6, 4e6}, {0, 1, 2}, 4);
  EXPECT_EQ(line.capacity.rate(), 0);
  line.carry({4e6, 4e6, 4e6}, {0, 1, 2}, 10);
  EXPECT_NEAR(line.capacity.rate(), kFilling * 12e6, 1e3);
}

TEST(LineCapacity, is_what_goes_to_all_peers_while_data_waits_for_all_of_them) {
  ThreePeers line;
  for (int call = 0; call < 20; ++call) {
    line.carry({5e6, 5e6, 2e6}, {0, 1, 2}, 5);
    line.carry({0, 0, 4e6}, {2}, 10);
    line.carry({0, 0, 0}, {}, 3);
  }
  EXPECT_NEAR(line.capacity.rate(), kFilling * 12e6, 1e3);
}

// Such a rate may be that of the slow peer.
TEST(LineCapacity, is_unknown_while_data_waits_for_few_peers_only) {
  ThreePeers line;
  line.carry({0, 0, 2e6}, {2}, 500);
  EXPECT_EQ(line.capacity.rate(), 0);
  line.carry({3e6, 0, 2e6}, {0, 2}, 20);
  EXPECT_NEAR(line.capacity.rate(), kFilling * 5e6, 1e3);
}

TEST(LineCapacity, bytes_that_left_before_data_waited_say_nothing) {
  ThreePeers line;
  for (int call = 0; call < 50; ++call) {
    line.carry({0, 0, 0}, {0, 1, 2}, 2);
    line.carry({3e6, 3e6, 3e6}, {0, 1, 2}, 4);
    line.carry({0, 0, 0}, {}, 2);
  }
  EXPECT_NEAR(line.capacity.rate(), kFilling * 9e6, 1e3);
}

TEST(LineCapacity, follows_a_line_that_becomes_slower_or_faster_and_stays_while_nothing_waits) {
  ThreePeers line;
  line.carry({4e6, 4e6, 4e6}, {0, 1, 2}, 500);
  line.carry({1e6, 1e6, 1e6}, {0, 1, 2}, 1000);
  EXPECT_NEAR(line.capacity.rate(), kFilling * 3e6, 0.1e6);
  line.carry({1e4, 1e4, 0}, {}, 5000);
  EXPECT_NEAR(line.capacity.rate(), kFilling * 3e6, 0.1e6);
  line.carry({4e6, 4e6, 4e6}, {0, 1, 2}, 1000);
  EXPECT_NEAR(line.capacity.rate(), kFilling * 12e6, 0.1e6);
}

TEST(LineCapacity, was_full_for_a_while_after_packets_were_sent_again) {
  ThreePeers line;
  line.carry({4e6, 4e6, 4e6}, {0, 1, 2}, 50);
  EXPECT_FALSE(line.capacity.was_full());
  line.resent = 3;
  line.carry({4e6, 4e6, 4e6}, {0, 1, 2}, 200);
  EXPECT_TRUE(line.capacity.was_full());
  line.carry({4e6, 4e6, 4e6}, {0, 1, 2}, 100);
  EXPECT_FALSE(line.capacity.was_full());
}

TEST(LineCapacity, a_peer_that_was_lost_does_not_count_backwards) {
  ThreePeers line;
  line.carry({4e6, 4e6, 4e6}, {0, 1, 2}, 50);
  line.bytes[1] = 0;
  line.carry({4e6, 4e6, 4e6}, {0, 1, 2}, 50);
  EXPECT_NEAR(line.capacity.rate(), kFilling * 12e6, 0.2e6);
}

}  // namespace
}  // namespace qccl::engine
