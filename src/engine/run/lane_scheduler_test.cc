#include "engine/run/lane_scheduler.h"

#include <gtest/gtest.h>

namespace qccl::engine {

namespace {

std::vector<std::size_t> members(const IndexSet& set) {
  std::vector<std::size_t> found;
  for (std::size_t i = set.next(0); i != IndexSet::kNone; i = set.next(i + 1)) found.push_back(i);
  return found;
}

TEST(IndexSet, walks_its_members_in_order_whatever_their_word) {
  for (const std::size_t size : {1u, 63u, 64u, 65u, 128u, 1023u}) {
    IndexSet set;
    EXPECT_EQ(set.next(0), IndexSet::kNone);
    set.reset(size);
    EXPECT_EQ(members(set), std::vector<std::size_t>{});
    std::vector<std::size_t> expected;
    for (std::size_t i = size; i-- > 0;) {
      if (i % 7 == 0 || i == 63 || i == 64 || i + 1 == size) {
        set.insert(i);
        expected.insert(expected.begin(), i);
      }
    }
    EXPECT_EQ(members(set), expected) << size;
    for (const std::size_t i : expected) set.erase(i);
    EXPECT_EQ(members(set), std::vector<std::size_t>{}) << size;
  }
}

TEST(IndexSet, a_walk_meets_what_is_inserted_ahead_of_it_and_not_behind) {
  IndexSet set;
  set.reset(200);
  set.insert(10);
  std::vector<std::size_t> found;
  for (std::size_t i = set.next(0); i != IndexSet::kNone; i = set.next(i + 1)) {
    found.push_back(i);
    if (i != 10) continue;
    set.insert(3);
    set.insert(11);
    set.insert(130);
  }
  EXPECT_EQ(found, (std::vector<std::size_t>{10, 11, 130}));
  EXPECT_EQ(members(set), (std::vector<std::size_t>{3, 10, 11, 130}));
  set.reset(200);
  EXPECT_EQ(members(set), std::vector<std::size_t>{});
}

TEST(LaneQueues, serve_the_lanes_of_each_peer_in_the_order_in_which_they_came) {
  LaneQueues queues;
  queues.reset(3, 10);
  for (const std::size_t lane : {7u, 2u, 9u}) queues.push(2, lane);
  queues.push(0, 4);
  EXPECT_EQ(queues.next_peer(0), 0u);
  EXPECT_EQ(queues.next_peer(1), 2u);
  EXPECT_FALSE(queues.has(3));
  for (const std::size_t lane : {7u, 2u, 9u}) {
    EXPECT_TRUE(queues.has(lane));
    EXPECT_EQ(queues.front(2), lane);
    queues.pop(2);
    EXPECT_FALSE(queues.has(lane));
  }
  EXPECT_EQ(queues.front(2), LaneQueues::kNone);
  EXPECT_EQ(queues.next_peer(1), LaneQueues::kNone);
  queues.push(1, 7);  // one that has left may come again, also in another queue
  EXPECT_EQ(queues.front(1), 7u);
  EXPECT_EQ(queues.front(0), 4u);
  queues.reset(3, 10);
  EXPECT_EQ(queues.next_peer(0), LaneQueues::kNone);
  EXPECT_FALSE(queues.has(7));
}

TEST(LaneScheduler, advances_lanes_that_are_awake_and_of_those_without_room_the_first) {
  LaneScheduler lanes;
  lanes.begin(4, 2);
  std::vector<std::size_t> advanced;
  bool has_room = false;
  const auto advance = [&](std::size_t lane) -> Result<LaneAdvance> {
    advanced.push_back(lane);
    if (lane < 2 || has_room) return LaneAdvance{.moved = true};
    return LaneAdvance{.starved_by = GroupRank(1)};
  };
  const auto run = [&] {
    advanced.clear();
    return *lanes.run(advance);
  };
  EXPECT_TRUE(run());
  EXPECT_EQ(advanced, (std::vector<std::size_t>{0, 1, 2, 3}));
  lanes.wake(1);
  lanes.wake(3);
  EXPECT_TRUE(run());
  EXPECT_EQ(advanced, (std::vector<std::size_t>{2, 1}));
  EXPECT_FALSE(run());
  has_room = true;
  EXPECT_TRUE(run());
  EXPECT_EQ(advanced, (std::vector<std::size_t>{2, 3}));
  EXPECT_FALSE(run());
  EXPECT_EQ(advanced, std::vector<std::size_t>{});
}

}  // namespace

}  // namespace qccl::engine
