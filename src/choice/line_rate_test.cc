#include "choice/line_rate.h"

#include <gtest/gtest.h>

namespace qccl::comm {
namespace {

constexpr std::uint64_t kLarge = LineRate::kLeastBytes;
constexpr double kProfileRate = 1e9;

LineRate on_hosts(const std::vector<int>& hosts, int rank = 0) { return LineRate(hosts, rank, kProfileRate); }

// Makes large calls until the ranks compare; their number.
int calls_until_compared(LineRate& line) {
  int calls = 1;
  while (line.next(kLarge) != LineRate::Step::compare) ++calls;
  return calls;
}

// What a comparison changes in which the hosts' ranks add up to these rates.
double learned(LineRate& line, const std::vector<double>& by_host) {
  line.comparison().values = by_host;
  return line.conclude();
}

TEST(LineRate, small_calls_do_not_count) {
  LineRate line = on_hosts({0, 1});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(line.next(kLarge - 1), LineRate::Step::none);
  EXPECT_EQ(line.next(kLarge), LineRate::Step::none);
  EXPECT_EQ(line.next(kLarge), LineRate::Step::compare);
}

TEST(LineRate, each_comparison_is_concluded_two_calls_later_and_periods_double_up_to_a_limit) {
  LineRate line = on_hosts({0, 1});
  std::vector<int> compared;
  int call = 0;
  while (compared.size() < 12) {
    ++call;
    if (line.next(kLarge) != LineRate::Step::compare) continue;
    compared.push_back(call);
    EXPECT_EQ(line.next(kLarge), LineRate::Step::none);
    EXPECT_EQ(line.next(kLarge), LineRate::Step::conclude);
    call += 2;
  }
  EXPECT_EQ(compared, (std::vector<int>{2, 5, 10, 20, 40, 80, 160, 320, 640, 1152, 1664, 2176}));
}

TEST(LineRate, ranks_of_a_host_share_its_line) {
  LineRate line = on_hosts({0, 0, 4}, 1);
  EXPECT_EQ(line.compare(25e6).values, (std::vector<double>{25e6, 0, 0, 0, 0}));
  EXPECT_EQ(on_hosts({0, 0, 4}, 2).compare(25e6).values, (std::vector<double>{0, 0, 0, 0, 25e6}));
}

TEST(LineRate, the_slowest_host_that_has_measured_counts) {
  LineRate line = on_hosts({0, 1, 2});
  EXPECT_EQ(learned(line, {100e6, 0, 50e6}), 50e6);
}

TEST(LineRate, nothing_changes_where_nobody_has_measured_or_the_rate_is_about_the_same) {
  LineRate line = on_hosts({0, 1});
  EXPECT_EQ(learned(line, {0, 0}), 0);
  EXPECT_EQ(learned(line, {1.05 * kProfileRate, 2 * kProfileRate}), 0);
  EXPECT_EQ(learned(line, {100e6, 200e6}), 100e6);
  EXPECT_EQ(learned(line, {105e6, 200e6}), 0);
  EXPECT_EQ(learned(line, {120e6, 200e6}), 120e6);
}

TEST(LineRate, goes_on_after_a_comparison) {
  LineRate line = on_hosts({0, 1});
  EXPECT_EQ(calls_until_compared(line), 2);
  EXPECT_EQ(calls_until_compared(line), 3);
}

}  // namespace
}  // namespace qccl::comm
