// Who holds a job up, from the states of its ranks.
#include <gtest/gtest.h>

#include <numeric>

#include "qccl/status.h"

namespace qccl {
namespace {

// Rank `rank`, which has posted `calls` calls in the group of all.
RankStatus rank_with(int rank, std::uint64_t calls) {
  RankStatus status;
  status.rank = rank;
  status.answered = true;
  status.groups = {{.name = "world", .id = "1", .calls = calls, .failure = ""}};
  return status;
}

RankStatus waiting(int rank, std::uint64_t number, std::vector<int> for_ranks, double seconds = 8) {
  RankStatus status = rank_with(rank, number);
  status.calls = {{.group = "world",
                   .group_id = "1",
                   .number = number,
                   .operation = "all_reduce",
                   .seconds = seconds,
                   .waits_for = std::move(for_ranks),
                   .received_bytes = 10,
                   .expected_bytes = 100}};
  return status;
}

TEST(HoldUp, names_the_rank_that_has_not_called) {
  std::vector<RankStatus> ranks;
  for (int rank = 0; rank < 13; ++rank) ranks.push_back(waiting(rank, 4711, {(rank + 12) % 13}));
  ranks[7] = rank_with(7, 4710);
  ranks[7].last = {"world", 4710, "all_reduce", 8.2};
  const HoldUp found = find_hold_up(ranks);
  EXPECT_EQ(found.rank, 7);
  EXPECT_EQ(found.waiting.size(), 12u);
  EXPECT_EQ(found.text,
            "12 ranks wait for rank 7, which has not called all_reduce #4711 of 'world'; its last call, all_reduce "
            "#4710 of 'world', ended 8.2 s ago");
}

TEST(HoldUp, looks_through_ranks_that_wait_themselves) {
  // Rank 1 is late for number 9 because it waits for rank 2 in number 8, which rank 2 has not called.
  const std::vector<RankStatus> ranks{waiting(0, 9, {1, 2}), waiting(1, 8, {2}), rank_with(2, 7)};
  const HoldUp found = find_hold_up(ranks);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.waiting, (std::vector<int>{0, 1}));
}

TEST(HoldUp, a_rank_that_does_not_answer_comes_before_those_that_do) {
  std::vector<RankStatus> ranks{waiting(0, 9, {1}), waiting(1, 9, {2}), RankStatus()};
  ranks[2].rank = 2;
  ranks[2].absence = "does not answer; it was last heard of 3.0 s ago";
  const HoldUp found = find_hold_up(ranks);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.text, "ranks 0, 1 wait for rank 2, which does not answer; it was last heard of 3.0 s ago");
}

TEST(HoldUp, a_message_that_nobody_sends_names_its_sender) {
  std::vector<RankStatus> ranks{waiting(0, 1, {1}), rank_with(1, 0)};
  ranks[0].calls[0].is_message = true;
  ranks[0].calls[0].operation = "recv";
  EXPECT_EQ(find_hold_up(ranks).text, "rank 0 waits for rank 1, which has not answered recv #1 of 'world'");
}

TEST(HoldUp, a_rank_that_has_not_opened_the_group_is_named) {
  std::vector<RankStatus> ranks{waiting(0, 1, {1}), rank_with(1, 5)};
  ranks[1].groups[0].id = "2";
  EXPECT_EQ(find_hold_up(ranks).text, "rank 0 waits for rank 1, which has not opened group 'world'");
}

TEST(HoldUp, ranks_in_different_calls_wait_for_each_other) {
  std::vector<RankStatus> ranks{waiting(0, 3, {1}), waiting(1, 3, {0})};
  ranks[1].calls[0].group_id = ranks[1].groups[0].id = "2";
  ranks[1].calls[0].group = "pair";
  const HoldUp found = find_hold_up(ranks);
  EXPECT_EQ(found.rank, -1);
  EXPECT_EQ(found.text,
            "ranks 0, 1 wait for each other for 8.0 s, in different calls: rank 0 in all_reduce #3 of 'world', rank 1 "
            "in all_reduce #3 of 'pair'");
}

TEST(HoldUp, a_call_that_all_are_in_names_who_has_received_least) {
  std::vector<RankStatus> ranks{waiting(0, 3, {1}), waiting(1, 3, {0})};
  ranks[1].calls[0].received_bytes = 5;
  EXPECT_EQ(find_hold_up(ranks).text,
            "ranks 0, 1 are in all_reduce #3 of 'world' for 8.0 s, and none waits outside it; rank 1 has received the "
            "least, 5 of 100 bytes");
}

TEST(HoldUp, young_calls_and_idle_ranks_hold_nobody_up) {
  EXPECT_EQ(find_hold_up({}).text, "");
  EXPECT_EQ(find_hold_up(std::vector{waiting(0, 3, {1}, 0.1), rank_with(1, 2)}).text, "");
  EXPECT_EQ(find_hold_up(std::vector{waiting(0, 3, {1}, 0.1), rank_with(1, 2)}, 0.05).rank, 1);
}

}  // namespace
}  // namespace qccl
