#include "comm/resolve/plan_cache.h"

#include <gtest/gtest.h>

#include "comm/resolve/resolve.h"

namespace qccl::comm {
namespace {

CollectiveCall all_reduce(std::size_t count, const CallOptions& options) {
  return {Collective::all_reduce, nullptr, nullptr, count, DataType::float32, options};
}

PlanCache::Plan plan_of(const CollectiveCall& call) {
  const auto resolved = resolve(call, 2, {}).take_or_throw();
  return std::make_shared<const engine::ExecutablePlan>(resolved, 2, GroupRank(0),
                                                        make_codec(resolved.compression).take_or_throw());
}

TEST(PlanCache, finds_a_call_that_was_made_before_and_no_other) {
  const CallOptions plain, ring{.algorithm = Algorithm::ring}, packed{.compression = minmax({.bits = 4})};
  const std::vector<CollectiveCall> calls = {all_reduce(1000, plain), all_reduce(1001, plain), all_reduce(1000, ring),
                                             all_reduce(1000, packed)};
  PlanCache cache;
  std::vector<PlanCache::Plan> plans;
  for (const CollectiveCall& call : calls) {
    EXPECT_EQ(cache.find(call, {}), nullptr);
    plans.push_back(plan_of(call));
    cache.add(call, {}, plans.back());
  }
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(cache.find(calls[i], {}), plans[i]) << i;
  }
}

TEST(PlanCache, distinguishes_offsets_in_mapped_regions) {
  const CallOptions options;
  const CollectiveCall call = all_reduce(1000, options);
  PlanCache cache;
  cache.add(call, {.region = 1, .bytes = 64}, plan_of(call));
  EXPECT_NE(cache.find(call, {.region = 1, .bytes = 64}), nullptr);
  EXPECT_EQ(cache.find(call, {.region = 1, .bytes = 128}), nullptr);
  EXPECT_EQ(cache.find(call, {.region = 2, .bytes = 64}), nullptr);
  EXPECT_EQ(cache.find(call, {}), nullptr);
}

TEST(PlanCache, finds_a_call_with_counts_by_its_resolved_form) {
  const CallOptions options;
  CollectiveCall call{Collective::all_gather,           nullptr, nullptr, 0, DataType::float32, options,
                      PooledVector<std::uint64_t>{3, 4}};
  PlanCache cache;
  const auto plan = plan_of(call);
  EXPECT_FALSE(PlanCache::has_signature(call));
  cache.add(plan);
  EXPECT_EQ(cache.find(call, {}), nullptr);
  EXPECT_EQ(cache.find(resolve(call, 2, {}).take_or_throw()), plan);
  (*call.counts)[1] = 5;
  EXPECT_EQ(cache.find(resolve(call, 2, {}).take_or_throw()), nullptr);
}

TEST(PlanCache, shares_a_codec_between_plans) {
  const CallOptions packed{.compression = minmax({.bits = 4})};
  PlanCache cache;
  EXPECT_EQ(cache.find_codec(*packed.compression), nullptr);
  const auto plan = plan_of(all_reduce(1000, packed));
  cache.add(plan);
  EXPECT_EQ(cache.find_codec(*packed.compression), plan->shared_codec());
}

TEST(PlanCache, forgets_the_oldest_plan_once_it_is_full) {
  const CallOptions options;
  PlanCache cache;
  for (std::size_t count = 1; count <= 129; ++count) {
    const CollectiveCall call = all_reduce(count, options);
    cache.add(call, {}, plan_of(call));
  }
  EXPECT_EQ(cache.find(all_reduce(1, options), {}), nullptr);
  for (std::size_t count = 2; count <= 129; ++count) EXPECT_NE(cache.find(all_reduce(count, options), {}), nullptr);
  cache.clear();
  EXPECT_EQ(cache.find(all_reduce(129, options), {}), nullptr);
}

}  // namespace
}  // namespace qccl::comm
