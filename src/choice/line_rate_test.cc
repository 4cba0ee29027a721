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

// What a comparison changes in which the hosts' ranks add up to these rates, and their lines carried at most `most`.
std::optional<AgreedLines> agreed(LineRate& line, const std::vector<double>& rates, const std::vector<double>& most,
                                  double lossy_ranks = 0) {
  line.comparison().values = rates;
  line.comparison().values.insert(line.comparison().values.end(), most.begin(), most.end());
  line.comparison().values.push_back(lossy_ranks);
  return line.conclude();
}

// The new rate, if all lines carried the same; 0 if nothing changes.
double learned(LineRate& line, const std::vector<double>& rates) {
  const auto lines = agreed(line, rates, std::vector<double>(rates.size(), 1e8));
  return lines ? lines->rate : 0;
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
  EXPECT_EQ(line.compare({25e6, 30e6}).values, (std::vector<double>{25e6, 0, 0, 0, 0, 30e6, 0, 0, 0, 0, 0}));
  EXPECT_EQ(on_hosts({0, 0, 4}, 2).compare({25e6, 30e6}).values,
            (std::vector<double>{0, 0, 0, 0, 25e6, 0, 0, 0, 0, 30e6, 0}));
}

TEST(LineRate, a_line_that_loses_packets_by_itself_counts_once_any_rank_has_seen_it) {
  LineRate line = on_hosts({0, 1});
  EXPECT_EQ(line.compare({.loses = true}).values, (std::vector<double>{0, 0, 0, 0, 1}));
  EXPECT_FALSE(agreed(line, {1e8, 1e8}, {1e8, 1e8})->loses);
  EXPECT_FALSE(agreed(line, {1e8, 1e8}, {1e8, 1e8}, 0)) << "nothing is new";
  EXPECT_TRUE(agreed(line, {1e8, 1e8}, {1e8, 1e8}, 1)->loses);
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

TEST(LineRate, owners_on_slow_lines_get_smaller_shares_until_these_are_as_fast_as_others) {
  LineRate line = on_hosts({0, 1, 2, 3});
  const auto slow = agreed(line, {1e8, 1e8, 5e7, 1e8}, {1e8, 1e8, 5e7, 1e8});
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rate, 5e7);
  EXPECT_EQ(slow->shares, (std::vector<int>{133, 133, 0, 133}));
  EXPECT_NEAR(slow->shares_rate, 7.5e7, 1e6);
  EXPECT_FALSE(agreed(line, {1e8, 1e8, 5e7, 1e8}, {1.1e8, 1.02e8, 5e7, 1e8})) << "about as before";
  const auto equal = agreed(line, {1e8, 1e8, 1e8, 1e8}, {1e8, 1e8, 1e8, 1e8});
  ASSERT_TRUE(equal);
  EXPECT_EQ(equal->shares, std::vector<int>());
  EXPECT_EQ(equal->shares_rate, 0);
}

// Windows of the slowest host's rate would keep the others' lines from being full, so that nobody saw what they carry.
TEST(LineRate, windows_are_those_of_the_middle_host) {
  LineRate line = on_hosts({0, 1, 2, 3});
  const auto slow = agreed(line, {5e7, 5e7, 5e7, 5e7}, {7e7, 6e7, 5e7, 7e7});
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->shares, std::vector<int>());
  EXPECT_EQ(slow->window_rate, 7e7);
  const auto faster = agreed(line, {5e7, 5e7, 5e7, 5e7}, {9e7, 8e7, 5.9e7, 9e7});
  ASSERT_TRUE(faster) << "though the slowest is as before";
  EXPECT_EQ(faster->rate, 5e7);
  EXPECT_EQ(faster->window_rate, 9e7);
  EXPECT_FALSE(agreed(line, {5e7, 5e7, 5e7, 5e7}, {9e7, 8e7, 5.9e7, 8.5e7})) << "about as before";
}

TEST(LineRate, shares_may_change_though_the_slowest_rate_stays_and_need_all_rates) {
  LineRate line = on_hosts({0, 1, 2, 3});
  EXPECT_FALSE(agreed(line, {kProfileRate, 0, 0, 0}, {1e8, 1e8, 1e7, 0}));
  const auto lines = agreed(line, {kProfileRate, 0, 0, 0}, {1e8, 1e8, 1e7, 1e8});
  ASSERT_TRUE(lines);
  EXPECT_EQ(lines->rate, kProfileRate);
  EXPECT_EQ(lines->shares, (std::vector<int>{133, 133, 0, 133}));
  EXPECT_EQ(lines->by_host, (std::vector<double>{1e8, 1e8, 1e7, 1e8}));
}

// A host that is given more to move is seen to carry more: without this its share would grow with every comparison.
TEST(LineRate, lines_that_are_not_clearly_slower_than_the_middle_one_count_as_equal) {
  LineRate line = on_hosts({0, 1, 2, 3});
  EXPECT_FALSE(agreed(line, {kProfileRate, 0, 0, 0}, {7.1e7, 5.7e7, 5.33e7, 6.9e7}));
  EXPECT_FALSE(agreed(line, {kProfileRate, 0, 0, 0}, {1e9, 1e8, 1e8, 1e8}));
  const auto lines = agreed(line, {kProfileRate, 0, 0, 0}, {9.4e7, 7e7, 4.8e7, 9e7});
  ASSERT_TRUE(lines);
  EXPECT_EQ(lines->by_host, (std::vector<double>{9e7, 9e7, 4.8e7, 9e7}));
  EXPECT_EQ(lines->shares[0], lines->shares[1]);
  EXPECT_EQ(lines->shares[0], lines->shares[3]);
  EXPECT_LT(lines->shares[2], 20);
  // It moves less now, so the others' lines stand out less.
  EXPECT_FALSE(agreed(line, {kProfileRate, 0, 0, 0}, {9e7, 7e7, 4.7e7, 7e7}));
  const auto equal = agreed(line, {kProfileRate, 0, 0, 0}, {9e7, 7e7, 6.5e7, 7e7});
  ASSERT_TRUE(equal);
  EXPECT_EQ(equal->shares, std::vector<int>());
  LineRate crowded = on_hosts({0, 0, 3, 3});
  EXPECT_FALSE(agreed(crowded, {kProfileRate, 0, 0, 0}, {1e8, 0, 0, 9e7})) << "hosts without ranks do not count";
}

// A line that was out for a while, or is measured differently each time.
TEST(LineRate, ranks_agree_whatever_they_have_measured) {
  LineRate one = on_hosts({0, 0, 2, 3}, 0);
  LineRate other = on_hosts({0, 0, 2, 3}, 3);
  const std::vector<double> rates[] = {{1e8, 0, 1e8, 1e8}, {1e8, 0, 1e-3, 1e8}, {3e9, 0, 1e4, 1e8},
                                       {0, 0, 1e8, 1e8},   {1e8, 0, 1e8, 2e8},  {1e8, 0, 1e8, 1e300}};
  for (const auto& first : rates) {
    for (const auto& most : rates) {
      const auto lines = agreed(one, first, most);
      const auto theirs = agreed(other, first, most);
      ASSERT_EQ(lines.has_value(), theirs.has_value());
      if (!lines) continue;
      EXPECT_EQ(lines->rate, theirs->rate);
      EXPECT_EQ(lines->shares, theirs->shares);
      EXPECT_EQ(lines->shares_rate, theirs->shares_rate);
    }
  }
}

TEST(LineRate, goes_on_after_a_comparison) {
  LineRate line = on_hosts({0, 1});
  EXPECT_EQ(calls_until_compared(line), 2);
  EXPECT_EQ(calls_until_compared(line), 3);
}

}  // namespace
}  // namespace qccl::comm
