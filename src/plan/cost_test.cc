#include "plan/cost.h"

#include <gtest/gtest.h>

namespace qccl::plan {
namespace {

constexpr Links kLinks = {.wire_rate = 1e8, .wire_latency = 1e-3, .local_rate = 1e9, .local_latency = 1e-6};

Price price_of(Algorithm algorithm, int world, std::uint64_t count, const std::vector<int>& hosts = {},
               const Encoding& encoding = {}) {
  const Request request = {.collective = Collective::all_reduce,
                           .algorithm = algorithm,
                           .world = world,
                           .count = count,
                           .slice_elements = 32768,
                           .compressed = encoding.encoded_bytes < encoding.element_bytes,
                           .hosts = hosts};
  std::vector<Role> roles;
  for (int rank = 0; rank < world; ++rank) roles.push_back(make_role(request, rank));
  return price(request, roles, hosts, kLinks, encoding);
}

constexpr std::uint64_t kLarge = 1 << 24;  // elements: 64 MiB

TEST(Cost, small_operations_cost_the_latencies_of_their_longest_way) {
  EXPECT_NEAR(price_of(Algorithm::one_shot, 4, 256).first, 1e-3, 1e-9);
  EXPECT_NEAR(price_of(Algorithm::sra, 4, 256).first, 2e-3, 1e-9);
  EXPECT_NEAR(price_of(Algorithm::ring, 4, 256).first, 6e-3, 1e-9);
  EXPECT_EQ(price_of(Algorithm::ring, 4, 256).start, 0);
}

TEST(Cost, large_operations_cost_the_busiest_hosts_bytes) {
  const double bytes = 4.0 * kLarge;
  for (const Algorithm algorithm : {Algorithm::sra, Algorithm::ring}) {
    const Price price = price_of(algorithm, 4, kLarge);
    EXPECT_NEAR(price.mean_sent_bytes / (2 * 3 / 4.0 * bytes), 1, 1e-3);
    EXPECT_NEAR(price.wire / (1.5 * bytes / 1e8), 1, 1e-3);
    EXPECT_GE(price.seconds, price.wire + 1e-3);
  }
  EXPECT_NEAR(price_of(Algorithm::one_shot, 4, kLarge).wire / (3 * bytes / 1e8), 1, 1e-3);
}

TEST(Cost, encoded_bytes_are_what_the_wire_carries) {
  const Price raw = price_of(Algorithm::sra, 4, kLarge);
  const Price coded = price_of(Algorithm::sra, 4, kLarge, {}, {.encoded_bytes = 0.5});
  EXPECT_NEAR(raw.wire / coded.wire, 8, 0.05);
  EXPECT_GT(coded.compute, raw.compute);
}

TEST(Cost, ranks_of_a_host_share_its_link_and_hierarchies_use_it_less) {
  const std::vector<int> hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  const Price flat = price_of(Algorithm::sra, 8, kLarge, hosts);
  const Price stacked = price_of(Algorithm::hierarchical, 8, kLarge, hosts);
  // Flat, each rank gives half of its 2 * 7/8 to the other host; stacked, a host gives it once.
  EXPECT_NEAR(flat.wire / stacked.wire, 4, 0.05);
  EXPECT_GT(flat.local, 0);
  EXPECT_EQ(price_of(Algorithm::sra, 8, kLarge, {0, 0, 0, 0, 0, 0, 0, 0}).busiest_host_bytes, 0);
}

TEST(Cost, pieces_sent_one_after_the_other_take_the_link_one_after_the_other) {
  const Request request = {.collective = Collective::all_to_all,
                           .algorithm = Algorithm::pairwise,
                           .world = 5,
                           .count = 65536,
                           .slice_elements = 32768};
  std::vector<Role> roles;
  for (int rank = 0; rank < request.world; ++rank) roles.push_back(make_role(request, rank));
  const Price price = qccl::plan::price(request, roles, {}, kLinks, {});
  EXPECT_NEAR(price.first, 1e-3, 1e-9);
  EXPECT_NEAR(price.wire / (4 * 4 * 65536 / 1e8), 1, 1e-2);
}

}  // namespace
}  // namespace qccl::plan
