#include "plan/algorithms/doubling.h"

#include <gtest/gtest.h>

#include "plan/plan.h"

namespace qccl::plan {
namespace {

TEST(Doubling, places_are_a_power_of_two_of_ranks_in_rank_order) {
  for (int world = 1; world <= 33; ++world) {
    const Doubling doubling(world);
    EXPECT_EQ(doubling.places(), 1 << doubling.swaps());
    EXPECT_EQ(doubling.places() + doubling.extra(), world);
    int next = 0;
    for (int rank = 0; rank < world; ++rank) {
      const int place = doubling.place_of(rank);
      if (place < 0) continue;
      EXPECT_EQ(place, next++) << rank << " of " << world;
      EXPECT_EQ(doubling.rank_at(place), rank);
    }
    EXPECT_EQ(next, doubling.places());
  }
}

int messages(int world) {
  int count = 0;
  for (int rank = 0; rank < world; ++rank) {
    const Request request{.algorithm = Algorithm::recursive_doubling, .world = world, .count = 1, .slice_elements = 64};
    for (const Lane& lane : schedule_of(request, rank).lanes) {
      for (const Step& step : lane.steps) {
        const bool receives = step.kind == StepKind::recv_reduce || step.kind == StepKind::recv_copy;
        if (!receives) count += static_cast<int>(step.peers.size());
      }
    }
  }
  return count;
}

TEST(Doubling, ranks_send_log2_of_the_world_times_and_extra_ones_once_to_and_fro) {
  EXPECT_EQ(messages(1), 0);
  EXPECT_EQ(messages(2), 2);
  EXPECT_EQ(messages(3), 2 + 2);
  EXPECT_EQ(messages(4), 4 * 2);
  EXPECT_EQ(messages(6), 4 * 2 + 2 * 2);
  EXPECT_EQ(messages(16), 16 * 4);
}

TEST(Doubling, compressed_goes_one_shot) {
  Request request{
      .algorithm = Algorithm::recursive_doubling, .world = 4, .count = 100, .slice_elements = 64, .compressed = true};
  const std::string doubled = to_string(schedule_of(request, 1));
  request.algorithm = Algorithm::one_shot;
  EXPECT_EQ(doubled, to_string(schedule_of(request, 1)));
}

}  // namespace
}  // namespace qccl::plan
