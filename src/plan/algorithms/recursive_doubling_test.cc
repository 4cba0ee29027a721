#include <gtest/gtest.h>

#include <bit>

#include "plan/plan.h"

namespace qccl::plan {
namespace {

Request request_of(int world) {
  return {.algorithm = Algorithm::recursive_doubling, .world = world, .count = 1, .slice_elements = 64};
}

// The peers to which the rank sends its partial sums, in order.
std::vector<int> swap_peers(int world, int rank) {
  std::vector<int> peers;
  const RankSchedule schedule = schedule_of(request_of(world), rank);
  for (const Step& step : schedule.lanes.at(0).steps) {
    if (step.kind == StepKind::send_sum) peers.push_back(step.peers.at(0));
  }
  return peers;
}

TEST(RecursiveDoubling, power_of_two_of_ranks_swap_in_pairs_at_doubling_distances) {
  for (int world = 2; world <= 33; ++world) {
    std::vector<int> swapping;  // in rank order
    for (int rank = 0; rank < world; ++rank) {
      if (!swap_peers(world, rank).empty()) swapping.push_back(rank);
    }
    ASSERT_EQ(swapping.size(), std::bit_floor(static_cast<unsigned>(world)));
    for (std::size_t own = 0; own < swapping.size(); ++own) {
      const std::vector<int> peers = swap_peers(world, swapping[own]);
      ASSERT_EQ(std::size_t{1} << peers.size(), swapping.size()) << swapping[own] << " of " << world;
      for (std::size_t swap = 0; swap < peers.size(); ++swap) {
        EXPECT_EQ(peers[swap], swapping[own ^ std::size_t{1} << swap]) << swapping[own] << " of " << world;
      }
    }
  }
}

int messages(int world) {
  int count = 0;
  for (int rank = 0; rank < world; ++rank) {
    const RankSchedule schedule = schedule_of(request_of(world), rank);
    for (const Lane& lane : schedule.lanes) {
      for (const Step& step : lane.steps) {
        if (sends(step.kind)) count += static_cast<int>(step.peers.size());
      }
    }
  }
  return count;
}

TEST(RecursiveDoubling, ranks_send_once_per_swap_and_partners_exchange_input_and_result) {
  EXPECT_EQ(messages(1), 0);
  EXPECT_EQ(messages(2), 2);
  EXPECT_EQ(messages(3), 2 + 2);
  EXPECT_EQ(messages(4), 4 * 2);
  EXPECT_EQ(messages(6), 4 * 2 + 2 * 2);
  EXPECT_EQ(messages(16), 16 * 4);
}

TEST(RecursiveDoubling, compressed_builds_one_shot) {
  Request request = request_of(4);
  request.compressed = true;
  const std::string doubled = to_string(schedule_of(request, 1));
  request.algorithm = Algorithm::one_shot;
  EXPECT_EQ(doubled, to_string(schedule_of(request, 1)));
}

}  // namespace
}  // namespace qccl::plan
