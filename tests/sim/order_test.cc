// Operations that ranks post at different times and, across groups, in different orders.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "plan/algorithms/registry.h"
#include "support/sim_call.h"

namespace qccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

engine::ResolvedCall all_reduce(std::uint64_t count, int world, const CallOptions& options = {}) {
  return make_call(Collective::all_reduce, count, DataType::float32, world, options);
}

void expect_all_right(const std::deque<SimCall>& calls) {
  for (const SimCall& call : calls) ASSERT_EQ(call.verify(), "");
}

// One thread per rank posts to several groups, each rank in a different order. Nothing fits the eager
// limit, so every operation needs its receivers' grants.
TEST(GroupsInDifferentOrder, do_not_deadlock) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    constexpr int kWorld = 3;
    constexpr int kGroups = 5;
    SimWorld world(kWorld,
                   {.seed = seed, .link = {.latency = std::chrono::microseconds(5), .slots = 2}, .slice_bytes = 16384});
    std::deque<SimCall> calls;
    for (int i = 0; i < kGroups; ++i) {
      const SimGroup group{static_cast<std::uint64_t>(100 + i), {0, 1, 2}};
      world.open_group(group.id, fmt::format("group {}", i), group.ranks);
      calls.emplace_back(world, group, all_reduce(100000, kWorld), SimCall::Data{.seed = seed});
    }
    Random random(seed);
    for (int rank = 0; rank < kWorld; ++rank) {
      std::vector<std::size_t> order(kGroups);
      std::iota(order.begin(), order.end(), 0);
      for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
      for (const std::size_t i : order) {
        calls[i].post(rank);
        world.run_for(std::chrono::microseconds(random.below(500)));
      }
    }
    ASSERT_TRUE(world.run(works_of(calls), seconds(5))) << "seed " << seed;
    expect_all_right(calls);
  }
}

// Like blocking calls: a rank posts to its second group only when its first is done. Rank 0 and rank 1
// share both groups and agree on the order; rank 2 and rank 3 use the other order.
TEST(GroupsInDifferentOrder, of_blocking_ranks_that_agree_pairwise_end) {
  SimWorld world(4);
  world.open_group(10, "low", {0, 1});
  world.open_group(11, "high", {2, 3});
  world.open_group(12, "all", {3, 2, 1, 0});
  std::deque<SimCall> calls;
  calls.emplace_back(world, SimGroup{10, {0, 1}}, all_reduce(100000, 2));
  calls.emplace_back(world, SimGroup{11, {2, 3}}, all_reduce(100000, 2));
  calls.emplace_back(world, SimGroup{12, {3, 2, 1, 0}}, all_reduce(100000, 4));
  calls[0].post(0);
  calls[0].post(1);
  for (int member = 0; member < 4; ++member) calls[2].post(member);
  calls[1].post(1);
  world.run_for(milliseconds(1));
  calls[1].post(0);
  ASSERT_TRUE(world.run(works_of(calls), seconds(5)));
  expect_all_right(calls);
}

TEST(ManyInFlight, small_operations_far_beyond_the_eager_budget_all_end_right) {
  constexpr int kWorld = 3;
  SimWorld world(kWorld, {.seed = 2, .link = {.jitter = milliseconds(1), .slots = 4}});
  std::deque<SimCall> calls;
  for (int i = 0; i < 300; ++i) {
    // 32 KiB per rank: 300 of them are 9 MiB, nine times the budget of a peer.
    calls.emplace_back(world, world_group(world), all_reduce(8192, kWorld, {.algorithm = Algorithm::one_shot}),
                       SimCall::Data{.seed = static_cast<std::uint64_t>(i), .placement = {.in_place = i % 2 == 0}});
    calls.back().post_all();
  }
  ASSERT_TRUE(world.run(works_of(calls), seconds(30)));
  expect_all_right(calls);
  EXPECT_EQ(world.held_frames(), 0u);
}

TEST(ManyInFlight, of_every_kind_and_size_all_end_right) {
  constexpr int kWorld = 4;
  SimWorld world(kWorld, {.seed = 4, .slice_bytes = 8192});
  std::deque<SimCall> calls;
  Random random(7);
  for (std::uint64_t i = 0; i < 400; ++i) {
    const std::uint64_t count = i % 10 == 0 ? random.below(60000) : random.below(2000);
    const auto collective = static_cast<Collective>(random.below(5));
    CallOptions options{.root = static_cast<int>(random.below(kWorld))};
    if (collective != Collective::broadcast) options.root = 0;
    const auto call =
        make_call(collective, collective == Collective::barrier ? 0 : count, DataType::float32, kWorld, options);
    calls.emplace_back(world, world_group(world), call, SimCall::Data{.seed = i});
    calls.back().post_all();
  }
  ASSERT_TRUE(world.run(works_of(calls), seconds(30)));
  expect_all_right(calls);
  EXPECT_EQ(world.held_frames(), 0u);
}

// Every rank in turn is the slow one: its peers run ahead until they must wait.
TEST(FastRanks, run_ahead_of_a_slow_one_and_all_ends_right) {
  constexpr int kWorld = 3;
  for (int slow = 0; slow < kWorld; ++slow) {
    SimWorld world(kWorld, {.seed = 9});
    std::deque<SimCall> calls;
    for (std::uint64_t i = 0; i < 120; ++i) {
      const auto collective = i % 7 == 3   ? Collective::broadcast
                              : i % 7 == 5 ? Collective::all_gather
                                           : Collective::all_reduce;
      const int root = collective == Collective::broadcast ? static_cast<int>(i % kWorld) : 0;
      calls.emplace_back(world, world_group(world),
                         make_call(collective, 1 + 997 * (i % 50), DataType::float32, kWorld, {.root = root}),
                         SimCall::Data{.seed = i});
      for (int rank = 0; rank < kWorld; ++rank) {
        if (rank != slow) calls.back().post(rank, seconds(60));
      }
    }
    world.run_for(seconds(5));
    for (SimCall& call : calls) {
      call.post(slow);
      world.run_for(std::chrono::microseconds(100));
    }
    ASSERT_TRUE(world.run(works_of(calls), seconds(10))) << "slow rank " << slow;
    expect_all_right(calls);
    EXPECT_EQ(world.held_frames(), 0u);
  }
}

// A root's small broadcasts end when they are sent, so a loop of them runs far ahead of a rank that computes.
TEST(FastRanks, may_broadcast_any_number_of_times_to_a_slow_one) {
  constexpr int kCalls = 80000;
  SimWorld world(2, {.link = {.latency = std::chrono::microseconds(5)}});
  const auto call = make_call(Collective::broadcast, 1, DataType::float32, 2);
  const float sent = 17;
  float received = 0;
  std::byte* source = reinterpret_cast<std::byte*>(const_cast<float*>(&sent));
  std::vector<SimWork> works;
  for (int i = 0; i < kCalls; ++i) {
    works.push_back(world.post(0, call, {source, source, std::chrono::hours(1)}));
    world.run_until([&] { return works.back()->done(); }, std::chrono::microseconds(20));
    if (!works.back()->done()) break;  // a blocking loop would wait here
  }
  world.settle();
  ASSERT_FALSE(works.back()->done() && works.back()->failure()) << works.back()->failure()->message;
  const std::size_t ahead = works.size();
  for (std::size_t i = 0; i < ahead; ++i) {
    auto* target = reinterpret_cast<std::byte*>(&received);
    works.push_back(world.post(1, call, {target, target, std::chrono::hours(1)}));
    received = 0;
    world.run_until([&] { return works.back()->done(); });
    ASSERT_FALSE(works.back()->failure()) << works.back()->failure()->message;
    ASSERT_EQ(received, sent) << "call " << i;
  }
  ASSERT_TRUE(world.run(works));
}

TEST(FramesOfAGroupNotOpenedYet, wait_for_it) {
  SimWorld world(3);
  const SimGroup late{77, {0, 1, 2}};
  for (const int rank : {0, 1}) world.open_group_on(rank, late.id, "late", late.ranks);
  std::deque<SimCall> calls;
  for (std::uint64_t i = 0; i < 20; ++i) {
    calls.emplace_back(world, late, all_reduce(1 + i * 5000, 3), SimCall::Data{.seed = i});
    calls.back().post(0, seconds(60));
    calls.back().post(1, seconds(60));
  }
  world.run_for(seconds(2));
  for (const SimCall& call : calls) EXPECT_FALSE(call.done(0) || call.done(1));
  world.open_group_on(2, late.id, "late", late.ranks);
  for (SimCall& call : calls) call.post(2);
  ASSERT_TRUE(world.run(works_of(calls), seconds(10)));
  expect_all_right(calls);
  EXPECT_EQ(world.held_frames(), 0u);
}

TEST(FramesOfAGroupNotOpenedYet, bring_its_failure_too) {
  SimWorld world(3);
  const SimGroup late{77, {0, 1, 2}};
  for (const int rank : {0, 1}) world.open_group_on(rank, late.id, "late", late.ranks);
  world.engine(0).groups().fail(late.id, {.kind = ErrorKind::aborted, .message = "no more"});
  world.settle();
  world.open_group_on(2, late.id, "late", late.ranks);
  SimCall call(world, late, all_reduce(10, 3));
  call.post(2);
  world.run_for(milliseconds(1));
  ASSERT_TRUE(call.done(2));
  EXPECT_EQ(call.failure(2)->kind, ErrorKind::aborted);
}

// Group ranks need not be in the world's order: the reduction adds them in the group's order.
TEST(GroupRanks, are_added_in_the_groups_order) {
  SimWorld world(4);
  const SimGroup group{5, {3, 0, 2}};
  world.open_group(group.id, "odd order", group.ranks);
  std::deque<SimCall> calls;
  for (const auto collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      if (is_reduction(collective) && !plan::adds_in_rank_order(collective, algorithm)) continue;  // another order
      calls.emplace_back(world, group, make_call(collective, 3000, DataType::float32, 3, {.algorithm = algorithm}));
      calls.back().post_all();
    }
  }
  calls.emplace_back(world, group, make_call(Collective::broadcast, 3000, DataType::float32, 3, {.root = 2}));
  calls.back().post_all();
  ASSERT_TRUE(world.run(works_of(calls)));
  expect_all_right(calls);
}

// Rank 0 is alone in its calls, so none of them ends.
TEST(LongCalls, wait_for_their_turn_from_256_kib_on) {
  using Admission = engine::AdmissionControl;
  SimWorld world(2);
  std::deque<SimCall> calls;
  for (const std::uint64_t bytes : {Admission::kRunningBytes, Admission::kLongBytes, Admission::kLongBytes - 4}) {
    calls.emplace_back(world, world_group(world), all_reduce(bytes / sizeof(float), 2));
    calls.back().post(0);
  }
  std::vector<bool> waits;
  for (const auto& operation : world.engine(0).operations()) waits.push_back(operation->waits_for_turn());
  EXPECT_EQ(waits, (std::vector<bool>{false, true, false}));
  for (SimCall& call : calls) call.post(1);
  ASSERT_TRUE(world.run(works_of(calls)));
  expect_all_right(calls);
}

}  // namespace
}  // namespace qccl::testing
