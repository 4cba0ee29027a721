#include "transport/shm/shm_cells.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>

namespace qccl::shm {
namespace {

constexpr std::uint64_t kGroup = 77;

// Boards of all ranks over areas in plain memory; no rank sleeps, so none is rung.
class Boards {
 public:
  // Opens `group` on all ranks if it is not 0.
  explicit Boards(int world, std::uint64_t group = 0) {
    for (int rank = 0; rank < world; ++rank) areas_.push_back(std::make_unique<Area>());
    for (int rank = 0; rank < world; ++rank) {
      std::vector<ShmCells::Peer> peers;
      for (int peer = 0; peer < world; ++peer) {
        if (peer != rank) peers.push_back({WorldRank(peer), &area(peer), PeerBell(area(peer).sleep_word, no_bell_)});
      }
      boards_.push_back(std::make_unique<ShmCells>(WorldRank(rank), world, area(rank), std::move(peers)));
      if (group != 0) EXPECT_TRUE(boards_.back()->open(group));
    }
  }
  ShmCells& operator[](int rank) { return *boards_[static_cast<std::size_t>(rank)]; }
  Area& area(int rank) { return *areas_[static_cast<std::size_t>(rank)]; }

 private:
  const os::Fd no_bell_;
  std::vector<std::unique_ptr<Area>> areas_;
  std::vector<std::unique_ptr<ShmCells>> boards_;
};

std::vector<std::byte> payload_of(int rank, std::uint64_t sequence) {
  const std::size_t sizes[] = {0, 1, 32, 33, 100, kBoardPayloadBytes};
  std::vector<std::byte> payload(sizes[sequence % std::size(sizes)]);
  for (std::size_t i = 0; i < payload.size(); ++i) {
    payload[i] = static_cast<std::byte>(i * 3 + sequence * 17 + static_cast<std::uint64_t>(rank));
  }
  return payload;
}

bool holds(const ExchangeCell& cell, int rank, std::uint64_t sequence) {
  const auto expected = payload_of(rank, sequence);
  return cell.sequence == sequence && cell.digest == sequence * 1000 && cell.payload_bytes == expected.size() &&
         (expected.empty() || std::memcmp(cell.payload, expected.data(), expected.size()) == 0);
}

void publish(ExchangeCells& board, std::uint64_t group, int rank, std::uint64_t sequence) {
  board.publish(group, sequence, sequence * 1000, payload_of(rank, sequence));
  board.ring(group);
}

TEST(ShmCells, a_cell_is_read_for_exactly_its_sequence) {
  Boards boards(2, kGroup);
  EXPECT_TRUE(boards[0].open(kGroup));
  EXPECT_FALSE(boards[1].read(kGroup, WorldRank(0), 1));
  publish(boards[0], kGroup, 0, 1);
  EXPECT_FALSE(boards[1].read(kGroup, WorldRank(0), 2));
  EXPECT_FALSE(boards[1].read(kGroup, WorldRank(0), 3));
  const auto cell = boards[1].read(kGroup, WorldRank(0), 1);
  ASSERT_TRUE(cell);
  EXPECT_TRUE(holds(*cell, 0, 1));
  const auto own = boards[0].read(kGroup, WorldRank(0), 1);
  ASSERT_TRUE(own);
  EXPECT_TRUE(holds(*own, 0, 1));
}

TEST(ShmCells, two_sequences_stay_readable_and_the_third_takes_the_place_of_the_first) {
  Boards boards(2, kGroup);
  publish(boards[0], kGroup, 0, 5);
  publish(boards[0], kGroup, 0, 6);
  EXPECT_TRUE(holds(*boards[1].read(kGroup, WorldRank(0), 5), 0, 5));
  EXPECT_TRUE(holds(*boards[1].read(kGroup, WorldRank(0), 6), 0, 6));
  publish(boards[0], kGroup, 0, 7);
  EXPECT_FALSE(boards[1].read(kGroup, WorldRank(0), 5));
  EXPECT_TRUE(holds(*boards[1].read(kGroup, WorldRank(0), 6), 0, 6));
  EXPECT_TRUE(holds(*boards[1].read(kGroup, WorldRank(0), 7), 0, 7));
}

TEST(ShmCells, groups_opened_in_different_orders_find_each_other) {
  Boards boards(2);
  for (std::uint64_t group = 0; group < 10; ++group) ASSERT_TRUE(boards[0].open(group));
  for (std::uint64_t group = 10; group-- > 0;) ASSERT_TRUE(boards[1].open(group));
  for (std::uint64_t group = 0; group < 10; ++group) publish(boards[0], group, 0, group + 1);
  for (std::uint64_t group = 0; group < 10; ++group) {
    const auto cell = boards[1].read(group, WorldRank(0), group + 1);
    ASSERT_TRUE(cell) << group;
    EXPECT_TRUE(holds(*cell, 0, group + 1));
  }
}

TEST(ShmCells, a_peer_that_opens_late_is_found) {
  Boards boards(2);
  boards[1].open(kGroup);
  EXPECT_FALSE(boards[1].read(kGroup, WorldRank(0), 1));
  boards[0].open(1);
  EXPECT_FALSE(boards[1].read(kGroup, WorldRank(0), 1));
  boards[0].open(kGroup);
  publish(boards[0], kGroup, 0, 1);
  EXPECT_TRUE(boards[1].read(kGroup, WorldRank(0), 1));
}

TEST(ShmCells, there_are_no_more_groups_than_cells) {
  Boards boards(2);
  for (std::uint64_t group = 0; group < kBoardCells; ++group) ASSERT_TRUE(boards[0].open(group));
  EXPECT_FALSE(boards[0].open(kBoardCells));
  boards[0].close(3);
  EXPECT_TRUE(boards[0].open(kBoardCells));
  EXPECT_FALSE(boards[0].open(kBoardCells + 1));
}

TEST(ShmCells, the_last_publication_is_readable_after_its_rank_closed_the_group) {
  Boards boards(2);
  for (std::uint64_t group = 0; group < kBoardCells; ++group) ASSERT_TRUE(boards[0].open(group));
  ASSERT_TRUE(boards[1].open(5));
  publish(boards[0], 5, 0, 1);
  boards[0].close(5);
  EXPECT_FALSE(boards[0].open(kBoardCells)) << "rank 1 may still read the only closed cell";
  EXPECT_FALSE(boards[0].open(5)) << "an old cell of the same group must not be taken for the new one";
  ASSERT_TRUE(boards[1].read(5, WorldRank(0), 1));
  EXPECT_TRUE(holds(*boards[1].read(5, WorldRank(0), 1), 0, 1));
  boards[1].close(5);
  EXPECT_TRUE(boards[0].open(kBoardCells));
}

TEST(ShmCells, a_lost_peer_keeps_no_cell) {
  Boards boards(2);
  for (std::uint64_t group = 0; group < kBoardCells; ++group) ASSERT_TRUE(boards[0].open(group));
  ASSERT_TRUE(boards[1].open(5));
  boards[0].close(5);
  ASSERT_FALSE(boards[0].open(kBoardCells));
  boards[0].forget(WorldRank(1));
  EXPECT_TRUE(boards[0].open(kBoardCells));
}

TEST(ShmCells, a_group_opened_again_shows_no_old_publication) {
  Boards boards(2, kGroup);
  publish(boards[0], kGroup, 0, 1);
  ASSERT_TRUE(boards[1].read(kGroup, WorldRank(0), 1));
  boards[0].close(kGroup);
  boards[1].close(kGroup);
  ASSERT_TRUE(boards[0].open(kGroup));
  EXPECT_FALSE(boards[0].read(kGroup, WorldRank(0), 1));
}

TEST(ShmCells, three_ranks_exchange_thousands_of_payloads_of_every_size) {
  constexpr int kRanks = 3;
  constexpr std::uint64_t kSequences = 6000;
  Boards boards(kRanks, kGroup);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&boards, rank] {
      for (std::uint64_t sequence = 1; sequence <= kSequences; ++sequence) {
        publish(boards[rank], kGroup, rank, sequence);
        for (int peer = 0; peer < kRanks; ++peer) {
          std::optional<ExchangeCell> cell;
          while (!(cell = boards[rank].read(kGroup, WorldRank(peer), sequence))) std::this_thread::yield();
          ASSERT_TRUE(holds(*cell, peer, sequence));
        }
      }
    });
  }
  for (auto& thread : ranks) thread.join();
}

}  // namespace
}  // namespace qccl::shm
