// A rank without memory for a new group also has none to notify its members: it notifies them once memory is available.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "memory/counted_new.h"
#include "support/sim_world.h"

namespace qccl::testing {
namespace {

constexpr std::uint64_t kFirstGroup = 7;

// Rank 1 refuses `groups` new groups for lack of memory; rank 0 has made them. Returns how many of them fail on rank 0
// with that cause before the deadline of its call.
std::size_t told_of_refused(std::size_t groups) {
  SimWorld world(2);
  const engine::ResolvedCall call = make_call(Collective::all_reduce, 3, DataType::uint64, 2);
  std::vector<std::uint64_t> data(3);
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  std::vector<SimWork> works;
  std::vector<std::vector<int>> ranks(groups, {0, 1});
  for (std::uint64_t id = kFirstGroup; id < kFirstGroup + groups; ++id) {
    world.open_group_on(0, id, "new", {0, 1});
    works.push_back(world.post(0, call, {bytes, bytes, std::chrono::seconds(10), id}));
  }
  refuse_allocation(1, std::numeric_limits<std::int64_t>::max());
  for (std::size_t i = 0; i < groups; ++i) world.engine(1).groups().refuse(kFirstGroup + i, std::move(ranks[i]));
  EXPECT_TRUE(stop_refusing());
  world.run_for(std::chrono::seconds(1));
  std::size_t told = 0;
  for (const SimWork& work : works) {
    if (work->done() && work->failure() && work->failure()->kind == ErrorKind::resource_exhausted) ++told;
  }
  world.run(works);
  return told;
}

TEST(RefusedGroup, its_members_are_told_when_there_is_memory) { EXPECT_EQ(told_of_refused(1), 1U); }
TEST(RefusedGroup, several_are_told_each) { EXPECT_EQ(told_of_refused(engine::kMaxRefusals), engine::kMaxRefusals); }

}  // namespace
}  // namespace qccl::testing
