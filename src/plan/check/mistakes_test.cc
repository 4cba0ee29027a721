// Every kind of mistake, planted in every suitable plan, is refused by name.
#include "plan/check/mistakes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/algorithms/registry.h"
#include "plan/check/checker.h"
#include "plan/check/coverage.h"

namespace qccl::plan {
namespace {

Request request_of(Collective collective, Algorithm algorithm) {
  return {.collective = collective,
          .algorithm = algorithm,
          .world = 5,
          .root = 2,
          .count = 1000,
          .slice_elements = 64,
          .hosts = {0, 0, 1, 1, 1}};
}

std::vector<RankSchedule> schedules_of(const Request& request) {
  std::vector<RankSchedule> schedules;
  for (int rank = 0; rank < request.world; ++rank) schedules.push_back(schedule_of(request, rank));
  return schedules;
}

// Plants the mistake in each suitable place of each plan. The checker must refuse them all, and the first of each plan
// with these words. Returns the number of plans with suitable places.
int expect_named(Mistake mistake, const std::string& words) {
  int planted = 0;
  for (const Collective collective : kEveryCollective) {
    if (collective == Collective::barrier) continue;
    for (const Algorithm algorithm : algorithms_of(collective)) {
      const Request request = request_of(collective, algorithm);
      for (int index = 0;; ++index) {
        std::vector<RankSchedule> schedules = schedules_of(request);
        if (!plant(mistake, request, schedules, index)) break;
        planted += index == 0;
        const Status status = check(request, schedules);
        const std::string complaint = status.ok() ? "nothing" : status.error().message;
        const bool is_named = complaint.find(words) != std::string::npos;
        EXPECT_TRUE(index == 0 ? is_named : !status.ok())
            << to_string(mistake) << " " << index << " in " << describe(request) << ": " << complaint;
      }
    }
  }
  return planted;
}

// The plans of reductions, or those of them that add in rank order.
int reductions(bool only_in_rank_order = false) {
  int count = 0;
  for (const AlgorithmEntry* entry : algorithm_list()) {
    if (only_in_rank_order && !entry->adds_in_rank_order) continue;
    for (const CollectiveBuilder& each : entry->collectives) count += is_reduction(each.collective);
  }
  return count;
}

TEST(Mistakes, missing_contribution_is_named_with_its_rank) {
  EXPECT_EQ(expect_named(Mistake::missing_contribution, "lacks the contribution of rank"), reductions());
}

TEST(Mistakes, double_contribution_is_named_with_its_rank) {
  EXPECT_EQ(expect_named(Mistake::double_contribution, "2 times"), reductions());
}

TEST(Mistakes, order_other_than_rank_order_is_named) {
  EXPECT_EQ(expect_named(Mistake::different_order, "not in rank order"), reductions(true));
}

TEST(Mistakes, send_without_receive_is_named) {
  EXPECT_GT(expect_named(Mistake::unreceived_send, "which nobody receives"), 10);
}

TEST(Mistakes, input_that_its_result_overwrites_is_named) {
  EXPECT_GT(expect_named(Mistake::overwritten_input, "reads input that its result has overwritten"), 0);
}

TEST(Mistakes, ranks_that_wait_for_each_other_are_named_a_deadlock) {
  EXPECT_GT(expect_named(Mistake::crossed_waits, "deadlock"), 2);
}

TEST(Mistakes, order_of_one_rank_alone_is_a_disagreement_between_ranks) {
  Request request = request_of(Collective::all_reduce, Algorithm::one_shot);
  std::vector<RankSchedule> schedules = schedules_of(request);
  ASSERT_TRUE(plant(Mistake::different_order, request, schedules));
  request.algorithm = Algorithm::tree;  // promises no particular order, but the same on all ranks
  const Status status = check(request, schedules);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("disagree"), std::string::npos) << status.error().message;
}

TEST(Coverage, has_every_world_and_ragged_counts_and_stops_at_a_failure) {
  std::vector<int> worlds(kMaxCheckedWorld + 1);
  int ragged = 0;
  const auto count = [&](const Requests& requests) -> Status {
    EXPECT_EQ(requests.size(), static_cast<std::size_t>(requests[0].world));
    ++worlds[requests.size()];
    ragged += !requests[0].counts.empty();
    return {};
  };
  ASSERT_TRUE(for_each_request(Collective::all_to_all, Algorithm::pairwise, kMaxCheckedWorld, count).ok());
  for (int world = 1; world <= kMaxCheckedWorld; ++world) EXPECT_EQ(worlds[static_cast<std::size_t>(world)], 12);
  EXPECT_EQ(ragged, 2 * kMaxCheckedWorld);

  int visited = 0;
  const auto fail = [&](const Requests& requests) -> Status {
    if (++visited < 3) return {};
    return Failure(ErrorKind::invalid_argument, describe(requests[0]));
  };
  const Status failed = for_each_request(Collective::all_reduce, Algorithm::ring, 4, fail);
  EXPECT_EQ(visited, 3);
  EXPECT_EQ(failed.error().message, "all_reduce ring, world 1, 7 elements");
}

}  // namespace
}  // namespace qccl::plan
