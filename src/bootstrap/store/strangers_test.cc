#include "bootstrap/store/strangers.h"

#include <gtest/gtest.h>

namespace qccl::bootstrap {
namespace {

TimePoint at(int second) { return TimePoint(std::chrono::seconds(second)); }

TEST(Strangers, the_oldest_of_the_largest_crowd_is_displaced) {
  Strangers strangers(std::chrono::seconds(10));
  EXPECT_EQ(strangers.to_displace(), std::nullopt);
  strangers.add(1, "a", at(0));
  strangers.add(2, "b", at(0));
  strangers.add(3, "b", at(0));
  EXPECT_EQ(strangers.count(), 3u);
  EXPECT_EQ(strangers.to_displace(), 2u);
  strangers.add(4, "a", at(0));
  strangers.add(5, "a", at(0));
  EXPECT_EQ(strangers.to_displace(), 1u);
  strangers.forget(1);
  strangers.forget(4);
  strangers.forget(4);
  EXPECT_EQ(strangers.count(), 3u);
  EXPECT_EQ(strangers.to_displace(), 2u);
}

TEST(Strangers, a_machine_with_many_addresses_of_ipv6_is_one_crowd) {
  Strangers strangers(std::chrono::seconds(10));
  strangers.add(1, "198.51.100.7", at(0));
  strangers.add(2, "2001:db8:1:2::1", at(0));
  strangers.add(3, "2001:db8:1:3::1", at(0));
  strangers.add(4, "2001:db8:1:2:ffff::9", at(0));
  EXPECT_EQ(strangers.to_displace(), 2u);
}

TEST(Strangers, each_is_overdue_at_its_own_time) {
  Strangers strangers(std::chrono::seconds(10));
  EXPECT_EQ(strangers.next_deadline(), kForever);
  EXPECT_EQ(strangers.overdue(at(100)), std::nullopt);
  strangers.add(1, "a", at(0));
  strangers.add(2, "a", at(1));
  EXPECT_EQ(strangers.next_deadline(), at(10));
  EXPECT_EQ(strangers.overdue(at(9)), std::nullopt);
  EXPECT_EQ(strangers.overdue(at(10)), 1u);
  strangers.extend(1, at(10));
  strangers.extend(3, at(10));
  EXPECT_EQ(strangers.next_deadline(), at(11));
  EXPECT_EQ(strangers.overdue(at(12)), 2u);
  strangers.forget(2);
  EXPECT_EQ(strangers.overdue(at(12)), std::nullopt);
  EXPECT_EQ(strangers.overdue(at(20)), 1u);
}

}  // namespace
}  // namespace qccl::bootstrap
