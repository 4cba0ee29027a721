#include "plan/cost/step_work.h"

#include <gtest/gtest.h>

namespace qccl::plan {
namespace {

StepWork all_work(const RankSchedule& schedule, bool compressed) {
  StepWork all;
  for (const Lane& lane : schedule.lanes) {
    for (std::size_t step = 0; step < lane.steps.size(); ++step) {
      const StepWork work = work_of(lane, step, compressed);
      all.encodes += work.encodes;
      all.decodes += work.decodes;
      all.adds += work.adds;
      all.copies += work.copies;
    }
  }
  return all;
}

StepWork work_of_rank(Algorithm algorithm, int rank, bool compressed) {
  const Request request{
      .algorithm = algorithm, .world = 4, .count = 4096, .slice_elements = 64, .compressed = compressed};
  return all_work(schedule_of(request, rank), compressed);
}

// In passes over a chunk; an all_reduce of four ranks has four chunks.
TEST(StepWork, of_scatter_reduce_all_gather) {
  EXPECT_EQ(work_of_rank(Algorithm::sra, 1, false), (StepWork{.adds = 3, .copies = 3}));
  // Encodes three parts for others and the sum; decodes three parts, the sum and three other sums.
  EXPECT_EQ(work_of_rank(Algorithm::sra, 1, true), (StepWork{.encodes = 4, .decodes = 7, .adds = 1}));
  // The first rank's own part is the first of its sum.
  EXPECT_EQ(work_of_rank(Algorithm::sra, 0, true), (StepWork{.encodes = 4, .decodes = 7, .copies = 1}));
}

// In passes over the whole data.
TEST(StepWork, of_one_shot) {
  EXPECT_EQ(work_of_rank(Algorithm::one_shot, 2, false), (StepWork{.adds = 3}));
  EXPECT_EQ(work_of_rank(Algorithm::one_shot, 2, true), (StepWork{.encodes = 1, .decodes = 4, .copies = 1}));
}

TEST(StepWork, of_a_ring_encodes_at_every_hop) {
  // It starts one partial sum and passes two on.
  EXPECT_EQ(work_of_rank(Algorithm::ring, 3, true), (StepWork{.encodes = 4, .decodes = 7, .adds = 3}));
  EXPECT_EQ(work_of_rank(Algorithm::ring, 3, false), (StepWork{.adds = 3, .copies = 3}));
}

}  // namespace
}  // namespace qccl::plan
