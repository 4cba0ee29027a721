#include "os/net/interfaces.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/expect_failure.h"

namespace qccl::os {
namespace {

TEST(Interfaces, filters_follow_nccls_forms) {
  struct Case {
    const char* filter;
    bool has_eth0;
  };
  for (const auto& [filter, has_eth0] : {Case{"", true},
                                         {"ib,eth", true},
                                         {"ib,en", false},
                                         {"=lo,eth0", true},
                                         {"=eth", false},
                                         {"^docker,eth", false},
                                         {"^docker,lo", true},
                                         {"^=eth0", false},
                                         {"^=eth", true},
                                         {",,ib,", false},
                                         {",eth,", true}}) {
    EXPECT_EQ(interface_matches(filter, "eth0"), has_eth0) << filter;
  }
}

TEST(Interfaces, loopback_is_listed_ipv4_first) {
  const auto found = list_interfaces("=lo").take_or_throw();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().name, "lo");
  EXPECT_EQ(found.front().address, "127.0.0.1");
  EXPECT_TRUE(std::ranges::all_of(found, &Interface::loopback));
}

TEST(Interfaces, excluding_loopback_leaves_the_rest) {
  const auto others = list_interfaces("^lo").take_or_throw();
  EXPECT_LT(others.size(), list_interfaces("").take_or_throw().size());
  EXPECT_TRUE(std::ranges::none_of(others, [](const Interface& each) { return each.name == "lo"; }));
}

TEST(Interfaces, the_route_to_a_loopback_address_starts_there) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    EXPECT_EQ(local_address_towards(address).take_or_throw(), address);
  }
}

TEST(Interfaces, the_route_to_an_unknown_name_is_invalid_argument) {
  expect_failure(local_address_towards("no-such-host.invalid"), ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace qccl::os
