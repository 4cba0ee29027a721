#include "plan/cost/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace qccl::plan {
namespace {

// One rank on each host.
HostLines lines_of(const std::vector<double>& rates) {
  HostLines lines{{}, rates};
  for (std::size_t host = 0; host < rates.size(); ++host) lines.hosts.push_back(static_cast<int>(host));
  return lines;
}

std::vector<double> slow_hosts(int world, int slow, double rate) {
  std::vector<double> rates(static_cast<std::size_t>(world), 100e6);
  std::fill_n(rates.begin(), slow, rate * 100e6);
  return rates;
}

// The time as a multiple of that of equal lines at full rate.
double ratio(const std::vector<double>& rates, const std::vector<int>& shares) {
  const HostLines equal = lines_of(std::vector<double>(rates.size(), 100e6));
  return seconds_per_byte(lines_of(rates), shares) / seconds_per_byte(equal, {});
}

TEST(Shares, of_equal_or_unknown_lines_are_equal) {
  EXPECT_EQ(shares_of(lines_of({1e8, 1e8, 1e8}), {}), std::vector<int>());
  EXPECT_EQ(shares_of(lines_of({1e8, 0, 1e7}), {}), std::vector<int>());
  EXPECT_EQ(shares_of(lines_of({1e8, 0, 1e7}), {150, 0, 150}), std::vector<int>());
  EXPECT_EQ(shares_of(lines_of({1e8}), {}), std::vector<int>());
}

// Either moves every byte once each way, whoever adds it up.
TEST(Shares, of_two_ranks_are_equal) { EXPECT_EQ(shares_of(lines_of({1e8, 1e6}), {}), std::vector<int>()); }

TEST(Shares, one_of_eight_hosts_at_half_rate_costs_a_seventh_in_place_of_twice_the_time) {
  const auto rates = slow_hosts(8, 1, 0.5);
  const std::vector<int> shares = shares_of(lines_of(rates), {});
  EXPECT_EQ(shares, (std::vector<int>{0, 114, 114, 114, 114, 114, 114, 114}));
  EXPECT_NEAR(ratio(rates, {}), 2, 1e-9);
  EXPECT_NEAR(ratio(rates, shares), 8.0 / 7, 0.01);
}

// What bench/hosts/bound.py says, as multiples of the time at full rate.
TEST(Shares, take_the_least_time_that_any_do) {
  struct Case {
    int world, slow;
    double rate, least;
  };
  for (const auto& [world, slow, rate, least] :
       {Case{4, 1, 0.5, 4.0 / 3}, Case{4, 2, 0.5, 4.0 / 3}, Case{4, 1, 0.75, 16.0 / 15}, Case{8, 1, 0.75, 56.0 / 54.25},
        Case{8, 1, 0.1, 40.0 / 7}, Case{8, 2, 0.25, 16.0 / 7}, Case{3, 1, 0.9, 30.0 / 29}}) {
    const auto rates = slow_hosts(world, slow, rate);
    EXPECT_LE(ratio(rates, shares_of(lines_of(rates), {})), 1.02 * least) << world << slow << rate;
  }
}

TEST(Shares, stay_while_others_save_less_than_a_twentieth) {
  const std::vector<int> in_use = shares_of(lines_of(slow_hosts(8, 1, 0.5)), {});
  EXPECT_EQ(shares_of(lines_of(slow_hosts(8, 1, 0.52)), in_use), in_use);
  EXPECT_EQ(shares_of(lines_of(slow_hosts(8, 1, 0.97)), {}), std::vector<int>());
  // A line that is as fast as the others again: the seven others move 6 % more than they need to.
  EXPECT_EQ(shares_of(lines_of(slow_hosts(8, 1, 1)), in_use), std::vector<int>());
  EXPECT_EQ(shares_of(lines_of(slow_hosts(8, 1, 0.96)), {88, 102, 102, 102, 102, 102, 102, 102}),
            (std::vector<int>{88, 102, 102, 102, 102, 102, 102, 102}));
}

// 4 + 2 + 2 ranks: no share of the first host moves more or fewer bytes over its line.
TEST(Shares, of_ranks_on_one_host_are_alike_and_share_its_line) {
  const HostLines lines{{0, 0, 0, 0, 4, 4, 6, 6}, {1e8, 0, 0, 0, 1e8, 0, 5e7, 0}};
  const std::vector<int> shares = shares_of(lines, {});
  ASSERT_EQ(shares.size(), 8u);
  EXPECT_EQ(shares[6], shares[7]);
  EXPECT_LT(shares[6], shares[4]);
  EXPECT_LT(seconds_per_byte(lines, shares), 0.8 * seconds_per_byte(lines, {}));
  // A host of most ranks moves the less the more it owns.
  const HostLines crowded{{0, 0, 0, 3}, {1e7, 0, 0, 1e8}};
  const std::vector<int> owners = shares_of(crowded, {});
  EXPECT_EQ(owners, (std::vector<int>{133, 133, 133, 0}));
}

TEST(Shares, of_any_rates_are_no_worse_than_equal_ones_and_some_rank_owns_something) {
  std::mt19937 random(7);
  std::vector<int> in_use;
  for (int i = 0; i < 2000; ++i) {
    HostLines lines;
    const int world = std::uniform_int_distribution(2, 40)(random);
    for (int rank = 0; rank < world; ++rank) {
      lines.hosts.push_back(std::uniform_int_distribution(0, world - 1)(random));
      lines.rates.push_back(std::pow(10, std::uniform_real_distribution(-300.0, 300.0)(random)));
    }
    if (static_cast<int>(in_use.size()) != world) in_use.clear();
    const std::vector<int> shares = shares_of(lines, in_use);
    const double before = seconds_per_byte(lines, in_use);
    in_use = shares;
    EXPECT_LE(seconds_per_byte(lines, shares), 1.001 * before);
    if (shares.empty()) continue;
    EXPECT_EQ(shares.size(), lines.hosts.size());
    EXPECT_GE(std::ranges::min(shares), 0);
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0), kEqualShare * world, world);
  }
}

TEST(Shares, are_worth_the_rate_at_which_equal_lines_would_take_as_long) {
  const HostLines lines = lines_of(slow_hosts(8, 1, 0.5));
  EXPECT_NEAR(equivalent_rate(lines, {}), 50e6, 1);
  EXPECT_NEAR(equivalent_rate(lines, shares_of(lines, {})), 87.5e6, 1e6);
}

}  // namespace
}  // namespace qccl::plan
