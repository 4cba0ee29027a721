#include "bootstrap/mesh/connection_count.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

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

TEST(ConnectionCount, distant_ranks_have_as_many_as_hold_what_is_on_its_way_and_at_least_four) {
  const ConnectionPolicy policy{.bytes_per_second = kTenGigabits, .send_buffer_bytes = kUsualBuffer};
  EXPECT_EQ(wanted_connections(policy, milliseconds(1)), 4);
  EXPECT_EQ(wanted_connections(policy, milliseconds(6)), 4);  // 7.5 MB in halves of 4 MiB
  EXPECT_EQ(wanted_connections(policy, milliseconds(8)), 5);
  EXPECT_EQ(wanted_connections(policy, milliseconds(100)), 8);
  const ConnectionPolicy large_buffers{.bytes_per_second = kTenGigabits / 10, .send_buffer_bytes = 32 << 20};
  EXPECT_EQ(wanted_connections(large_buffers, milliseconds(100)), 4);
  EXPECT_EQ(wanted_connections({.bytes_per_second = kTenGigabits}, milliseconds(100)), 4) << "an unknown buffer";
}

TEST(ConnectionCount, near_ranks_in_a_cloud_that_limits_connections_have_four) {
  ConnectionPolicy policy{.bytes_per_second = kTenGigabits, .send_buffer_bytes = kUsualBuffer, .in_cloud = true};
  EXPECT_EQ(wanted_connections(policy, microseconds(100)), 4);
  policy.remote_peers = 8;
  EXPECT_EQ(wanted_connections(policy, microseconds(100)), 2);
}

TEST(ConnectionCount, a_cloud_is_known_by_its_network_card) {
  const std::filesystem::path folder = testing::TempDir() + "qccl_cards_" + std::to_string(::getpid());
  EXPECT_FALSE(is_in_limiting_cloud(folder));
  std::filesystem::create_directories(folder / "lo" / "device");
  const auto is_in_cloud_with = [&](const char* vendor) {
    std::ofstream(folder / "lo" / "device" / "vendor") << vendor << "\n";
    return is_in_limiting_cloud(folder);
  };
  EXPECT_FALSE(is_in_cloud_with("0x8086"));
  EXPECT_TRUE(is_in_cloud_with("0x1d0f"));
  EXPECT_TRUE(is_in_cloud_with("0x1ae0"));
  std::filesystem::remove_all(folder);
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

}  // namespace
}  // namespace qccl::bootstrap
