#include "plan/checker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace qccl::plan {
namespace {

std::vector<Role> roles_of(const Request& request) {
  std::vector<Role> roles;
  for (int rank = 0; rank < request.world; ++rank) roles.push_back(make_role(request, rank));
  return roles;
}

Request sra(int world, std::uint64_t count) {
  return {.collective = Collective::all_reduce,
          .algorithm = Algorithm::sra,
          .world = world,
          .count = count,
          .slice_elements = 64};
}

TEST(Checker, accepts_every_plan_for_worlds_1_to_33_and_ragged_counts) {
  int checked = 0;
  for (const auto collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                Collective::broadcast, Collective::barrier}) {
    for (const auto algorithm : {Algorithm::one_shot, Algorithm::sra}) {
      for (int world = 1; world <= 33; ++world) {
        for (const std::uint64_t count : {0, 1, 7, 1023, 4099}) {
          for (const bool compressed : {false, true}) {
            if (collective == Collective::barrier && count != 0) continue;
            const Request request{.collective = collective,
                                  .algorithm = algorithm,
                                  .world = world,
                                  .root = world / 2,
                                  .count = count,
                                  .bucket_size = compressed ? 100u : 1u,
                                  .slice_elements = 1600,
                                  .compressed = compressed};
            const Status status = check(request);
            ASSERT_TRUE(status.ok()) << to_string(collective) << " world " << world << " count " << count << ": "
                                     << status.error().message;
            ++checked;
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 2000);
}

TEST(Checker, finds_a_missing_receive) {
  auto roles = roles_of(sra(4, 1000));
  auto& lanes = roles[1].lanes;
  std::erase_if(lanes, [](const Lane& lane) { return lane.steps[0].kind == StepKind::recv_copy && lane.chunk == 2; });
  EXPECT_FALSE(check(sra(4, 1000), roles).ok());
}

TEST(Checker, finds_a_missing_send) {
  auto roles = roles_of(sra(4, 1000));
  roles[3].lanes.erase(roles[3].lanes.begin());
  const Status status = check(sra(4, 1000), roles);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("deadlock"), std::string::npos) << status.error().message;
}

TEST(Checker, finds_a_contribution_out_of_order) {
  auto roles = roles_of(sra(4, 1000));
  for (Lane& lane : roles[0].lanes) {
    if (lane.steps[0].kind == StepKind::local_reduce) std::swap(lane.steps[1], lane.steps[2]);
  }
  EXPECT_FALSE(check(sra(4, 1000), roles).ok());
}

TEST(Checker, finds_a_contribution_added_twice) {
  auto roles = roles_of(sra(3, 1000));
  for (Lane& lane : roles[0].lanes) {
    if (lane.steps[0].kind == StepKind::local_reduce) lane.steps.insert(lane.steps.begin(), lane.steps[0]);
  }
  EXPECT_FALSE(check(sra(3, 1000), roles).ok());
}

TEST(Checker, finds_a_deadlock_of_crossed_waits) {
  Request request = sra(2, 200);
  request.collective = Collective::all_gather;
  auto roles = roles_of(request);
  for (Role& role : roles) {  // receive first, then send, in one lane
    Lane give = role.lanes[0];
    role.lanes.erase(role.lanes.begin());
    role.lanes[1].steps.push_back(give.steps[0]);
  }
  EXPECT_FALSE(check(request, roles).ok());
}

TEST(Checker, finds_input_overwritten_before_it_was_sent) {
  Request request = sra(2, 64);
  request.algorithm = Algorithm::one_shot;
  auto roles = roles_of(request);
  auto& steps = roles[0].lanes[0].steps;
  std::rotate(steps.begin(), steps.begin() + 1, steps.end());
  EXPECT_FALSE(check(request, roles).ok());
}

}  // namespace
}  // namespace qccl::plan
