#include "bootstrap/mesh/connection_count.h"

#include <gtest/gtest.h>

namespace qccl::bootstrap {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr double kTenGigabits = 1.25e9;
constexpr std::uint64_t kUsualBuffer = 4 << 20;

TEST(ConnectionCount, near_ranks_have_one) {
  const ConnectionPolicy policy{.bytes_per_second = kTenGigabits, .send_buffer_bytes = kUsualBuffer};
  for (const Nanoseconds round_trip : {Nanoseconds(0), Nanoseconds(microseconds(50)), Nanoseconds(microseconds(999))}) {
    EXPECT_EQ(wanted_connections(policy, round_trip), 1);
  }
}

TEST(ConnectionCount, distant_ranks_have_as_many_as_hold_what_is_on_its_way) {
  const ConnectionPolicy policy{.bytes_per_second = kTenGigabits, .send_buffer_bytes = kUsualBuffer};
  EXPECT_EQ(wanted_connections(policy, milliseconds(1)), 1);
  EXPECT_EQ(wanted_connections(policy, milliseconds(2)), 2);  // 2.5 MB in halves of 4 MiB
  EXPECT_EQ(wanted_connections(policy, milliseconds(6)), 4);
  EXPECT_EQ(wanted_connections(policy, milliseconds(100)), 8);
  const ConnectionPolicy large_buffers{.bytes_per_second = kTenGigabits / 10, .send_buffer_bytes = 32 << 20};
  EXPECT_EQ(wanted_connections(large_buffers, milliseconds(100)), 1);
}

TEST(ConnectionCount, many_peers_share_sixteen_and_each_has_one) {
  ConnectionPolicy policy{.bytes_per_second = kTenGigabits, .send_buffer_bytes = kUsualBuffer};
  policy.remote_peers = 7;
  EXPECT_EQ(wanted_connections(policy, milliseconds(100)), 2);
  policy.remote_peers = 1000;
  EXPECT_EQ(wanted_connections(policy, milliseconds(100)), 1);
}

TEST(ConnectionCount, what_is_told_counts_at_any_distance) {
  const ConnectionPolicy policy{.told = 5, .remote_peers = 100};
  EXPECT_EQ(wanted_connections(policy, Nanoseconds(0)), 5);
  EXPECT_EQ(wanted_connections(policy, milliseconds(100)), 5);
}

TEST(ConnectionCount, without_a_known_buffer_there_is_one) {
  EXPECT_EQ(wanted_connections({.bytes_per_second = kTenGigabits}, milliseconds(100)), 1);
}

}  // namespace
}  // namespace qccl::bootstrap
