#include "tools/doctor/line_judgement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qccl::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(JudgeQueue, a_line_that_drops_little_is_good) {
  EXPECT_EQ(judge_queue({.rate = 25e6,
                         .shortest_round_trip = 0.02,
                         .full_round_trip = 0.021,
                         .sent_packets = 100'000,
                         .resent_packets = 15}),
            "");
  EXPECT_EQ(judge_queue({}), "");
}

TEST(JudgeQueue, a_queue_as_long_as_half_of_the_line_is_good_whatever_it_drops) {
  EXPECT_EQ(judge_queue({.rate = 25e6,
                         .shortest_round_trip = 0.02,
                         .full_round_trip = 0.031,
                         .sent_packets = 10'000,
                         .resent_packets = 100}),
            "");
  EXPECT_EQ(judge_queue({.rate = 12.5e6,
                         .shortest_round_trip = 0.002,
                         .full_round_trip = 0.014,
                         .sent_packets = 10'000,
                         .resent_packets = 100}),
            "");
}

TEST(JudgeQueue, a_short_queue_has_a_size) {
  EXPECT_EQ(judge_queue({.rate = 12.5e6,
                         .shortest_round_trip = 0.002,
                         .full_round_trip = 0.007,
                         .sent_packets = 10'000,
                         .resent_packets = 100}),
            "; its queue is short, about 62.5 KB or 5 ms: 1 % of the packets were sent again");
}

TEST(JudgeQueue, packets_may_be_lost_without_a_queue) {
  EXPECT_THAT(judge_queue({.rate = 12.5e6,
                           .shortest_round_trip = 0.02,
                           .full_round_trip = 0.0215,
                           .sent_packets = 10'000,
                           .resent_packets = 100}),
              HasSubstr("loses packets by itself"));
}

TEST(JudgeHosts, equal_ones_that_nobody_else_uses_are_good) {
  EXPECT_THAT(judge_hosts({{6e6, 6e6}, {5e6, 6e6}, {6e6, 5e6, 9e4, 9e4}}, {0, 1, 2}), IsEmpty());
  EXPECT_THAT(judge_hosts({}, {}), IsEmpty());
}

TEST(JudgeHosts, a_slow_way_out_or_in_is_named_with_its_rank) {
  EXPECT_THAT(judge_hosts({{6e6, 6e6}, {3e6, 6e6}, {6e6, 3e6}, {6e6, 6e6}}, {0, 2, 4, 6}),
              ElementsAre(HasSubstr("rank 2's host sends 24 Mbit/s, the middle one 48 Mbit/s"),
                          HasSubstr("rank 4's host receives 24 Mbit/s, the middle one 48 Mbit/s")));
}

// Nothing is known of its line.
TEST(JudgeHosts, a_host_that_could_not_be_measured_is_not_slow) {
  EXPECT_THAT(judge_hosts({{6e6, 6e6}, {0, 0}, {6e6, 6e6}}, {0, 1, 2}), IsEmpty());
}

TEST(JudgeHosts, other_programs_are_named_with_their_rates) {
  EXPECT_THAT(judge_hosts({{6e6, 6e6, 3e6, 1e5}, {6e6, 6e6}}, {0, 1}),
              ElementsAre(HasSubstr("other programs sent 24 Mbit/s from rank 0's host and received 0.8 Mbit/s")));
}

TEST(NetworkBytes, are_those_of_all_interfaces_but_the_loopback_one) {
  const NetworkBytes all = parse_network_bytes(
      "Inter-|   Receive                                                |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls\n"
      "    lo:     500       5    0    0    0     0          0         0      500       5    0    0    0     0\n"
      "  eth0:    1000      10    0    0    0     0          0         0     2000      20    0    0    0     0\n"
      "wlan0:1 1 0 0 0 0 0 0 2 2 0 0 0 0 0 0\n"
      "broken: 7\n");
  EXPECT_EQ(all.in, 1001u);
  EXPECT_EQ(all.out, 2002u);
  EXPECT_EQ(parse_network_bytes("").in, 0u);
}

}  // namespace
}  // namespace qccl::tools
