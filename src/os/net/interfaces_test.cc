#include "os/net/interfaces.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace qccl::os {
namespace {

TEST(Interfaces, filters_follow_nccls_forms) {
  EXPECT_TRUE(interface_matches("", "eth0"));
  EXPECT_TRUE(interface_matches("ib,eth", "eth0"));
  EXPECT_FALSE(interface_matches("ib,en", "eth0"));
  EXPECT_TRUE(interface_matches("=lo,eth0", "eth0"));
  EXPECT_FALSE(interface_matches("=eth", "eth0"));
  EXPECT_FALSE(interface_matches("^docker,eth", "eth0"));
  EXPECT_TRUE(interface_matches("^docker,lo", "eth0"));
  EXPECT_FALSE(interface_matches("^=eth0", "eth0"));
  EXPECT_TRUE(interface_matches("^=eth", "eth0"));
}

TEST(Interfaces, stray_commas_match_nothing) {
  EXPECT_FALSE(interface_matches(",,ib,", "eth0"));
  EXPECT_TRUE(interface_matches(",eth,", "eth0"));
}

TEST(Interfaces, loopback_is_listed_ipv4_first) {
  auto found = list_interfaces("=lo");
  ASSERT_TRUE(found.ok());
  ASSERT_FALSE(found->empty());
  EXPECT_EQ(found->front().name, "lo");
  EXPECT_EQ(found->front().address, "127.0.0.1");
  EXPECT_TRUE(std::all_of(found->begin(), found->end(), [](const Interface& each) { return each.loopback; }));
}

TEST(Interfaces, excluding_loopback_leaves_the_rest) {
  auto all = list_interfaces("");
  auto others = list_interfaces("^lo");
  ASSERT_TRUE(all.ok() && others.ok());
  EXPECT_LT(others->size(), all->size());
  EXPECT_TRUE(std::none_of(others->begin(), others->end(), [](const Interface& each) { return each.name == "lo"; }));
}

TEST(Interfaces, the_way_to_a_loopback_address_starts_there) {
  auto to_ipv4 = local_address_towards("127.0.0.1");
  ASSERT_TRUE(to_ipv4.ok());
  EXPECT_EQ(*to_ipv4, "127.0.0.1");
  auto to_ipv6 = local_address_towards("::1");
  ASSERT_TRUE(to_ipv6.ok()) << to_ipv6.error().message;
  EXPECT_EQ(*to_ipv6, "::1");
}

TEST(Interfaces, the_way_to_an_unknown_name_is_invalid_argument) {
  const auto address = local_address_towards("no-such-host.invalid");
  ASSERT_FALSE(address.ok());
  EXPECT_EQ(address.error().kind, ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace qccl::os
