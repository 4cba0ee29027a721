// What transport_contract_test.cc does not cover of shared memory: slots, the board, bells, hostile peers.
#include "transport/shm/shm_endpoint.h"

#include <gtest/gtest.h>

#include <array>

#include "transport/shm/host_test.h"

namespace qccl::shm {
namespace {

using namespace transport_test;

TEST(ShmEndpoint, few_large_slots_are_enough) {
  Host host(2, Host::Linked::handshake, 64);
  on_each_rank(2, [&](int rank) {
    for (std::uint64_t i = 0; i < 1000; ++i) {
      send_when_there_is_room(host[rank], 1 - rank, i % 3 == 0 ? kMaxFrameBytes : 100, i);
      const ReceivedFrame frame = await_frame(host[rank]);
      ASSERT_TRUE(is_frame(frame.bytes, i));
      host[rank].release(frame);
    }
  });
}

TEST(ShmEndpoint, a_rank_about_to_sleep_sees_once_the_slots_that_it_missed) {
  Host host(2);
  while (send_frame(host[0], 1, kMaxFrameBytes, 0)) continue;
  ASSERT_TRUE(host[0].arm());
  host[0].disarm();
  host[1].release(*host[1].receive());
  EXPECT_FALSE(host[0].arm());
  host[0].disarm();
  EXPECT_TRUE(host[0].arm()) << "a rank that does not send must be able to sleep";
  host[0].disarm();
}

// ---- the board

class ShmEndpointBoard : public ::testing::TestWithParam<Host::Linked> {};

INSTANTIATE_TEST_SUITE_P(Linked, ShmEndpointBoard,
                         ::testing::Values(Host::Linked::one_mapping, Host::Linked::handshake));

TEST_P(ShmEndpointBoard, an_operation_wakes_ranks_that_sleep) {
  constexpr int kRanks = 3;
  constexpr std::uint64_t kGroup = 9, kSequences = 4000;
  Host host(kRanks, GetParam());
  for (int rank = 0; rank < kRanks; ++rank) ASSERT_TRUE(host[rank].board()->open(kGroup));
  on_each_rank(kRanks, [&](int rank) {
    ExchangeCells& board = *host[rank].board();
    std::array<std::byte, 100> payload;
    for (std::uint64_t sequence = 1; sequence <= kSequences; ++sequence) {
      write_frame(payload, sequence + static_cast<std::uint64_t>(rank));
      board.publish(kGroup, sequence, sequence, payload);
      board.ring(kGroup);
      for (int peer = 0; peer < kRanks; ++peer) {
        std::optional<ExchangeCell> cell;
        while (going_well() && !(cell = board.read(kGroup, WorldRank(peer), sequence))) sleep_until_event(host[rank]);
        ASSERT_TRUE(cell);
        ASSERT_TRUE(is_frame({cell->payload, cell->payload_bytes}, sequence + static_cast<std::uint64_t>(peer)));
      }
    }
  });
}

void publish(Endpoint& endpoint, std::uint64_t group, std::uint64_t sequence) {
  endpoint.board()->publish(group, sequence, 0, {});
  endpoint.board()->ring(group);
}

TEST(ShmEndpoint, a_publication_does_not_wake_a_rank_outside_of_the_group) {
  Host host(2);
  ASSERT_TRUE(host[0].board()->open(4));
  ASSERT_TRUE(host[1].arm());
  publish(host[0], 4, 1);
  EXPECT_EQ(host.area(1).sleep_word.phase & 1, 1u) << "rank 1 was rung";
  host[1].disarm();
  ASSERT_TRUE(host[1].board()->open(4));
  ASSERT_TRUE(host[1].arm());
  publish(host[0], 4, 2);
  EXPECT_EQ(host.area(1).sleep_word.phase & 1, 0u) << "rank 1 was not rung";
  host[1].disarm();
}

TEST(ShmEndpoint, a_rank_about_to_sleep_sees_once_the_cell_that_it_missed) {
  Host host(2);
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(host[rank].board()->open(6));
  ASSERT_FALSE(host[1].board()->read(6, WorldRank(0), 1));
  EXPECT_TRUE(host[1].arm());
  host[1].disarm();
  publish(host[0], 6, 1);
  EXPECT_FALSE(host[1].arm());
  host[1].disarm();
  EXPECT_TRUE(host[1].arm()) << "a rank that does not read it must be able to sleep";
  host[1].disarm();
}

TEST(ShmEndpoint, a_board_needs_all_ranks_of_the_world) {
  EXPECT_NE(Host(2)[0].board(), nullptr);
  auto poller = os::Poller::create().take_or_throw();
  auto exports = create_shm_exports(0, 2);
  ASSERT_FALSE(exports.unsupported_reason);
  const auto alone = make_shm_endpoint(poller, {.world = 3}, std::move(exports), {}).take_or_throw();
  EXPECT_EQ(alone->board(), nullptr);
  EXPECT_FALSE(alone->is_local(WorldRank(1)));
}

// ---- a hostile peer

TEST(ShmEndpoint, a_malformed_descriptor_loses_the_peer_and_no_other) {
  Host host(3);
  host.queue(2, 0).control().descriptors.words[0].store(pack_ring_word(1, {0xFFFF, 64}));
  const auto loss = await_loss(host[0]);
  EXPECT_EQ(loss.peer, WorldRank(2));
  EXPECT_EQ(loss.cause, "corrupt data: it sent slot 65535 of 80");
  EXPECT_EQ(loss.end, Transport::End::broken);
  ASSERT_TRUE(send_frame(host[1], 0, 100, 7));
  EXPECT_TRUE(is_frame(await_frame(host[0]).bytes, 7));
  const auto told = await_loss(host[2]);
  EXPECT_EQ(told.peer, WorldRank(0));
  EXPECT_EQ(told.cause, "gave this rank up: it found corrupt data in the memory that they share");
  EXPECT_EQ(told.end, Transport::End::broken) << "a rank that lives has not ended";
}

TEST(ShmEndpoint, a_malformed_return_loses_the_peer) {
  Host host(2);
  host.queue(0, 1).control().returns.words[0].store(pack_ring_word(1, {3, 0}));
  EXPECT_FALSE(host[0].reserve(WorldRank(1), kMaxFrameBytes, TrafficClass::data));
  const auto loss = await_loss(host[0]);
  EXPECT_EQ(loss.peer, WorldRank(1));
  EXPECT_EQ(loss.cause, "corrupt data: it returned slot 3, which it does not have");
}

TEST(ShmEndpoint, a_malformed_board_cell_loses_the_peer) {
  Host host(2);
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(host[rank].board()->open(1));
  publish(host[1], 1, 1);
  host.area(1).cells[0].buffers[1].payload_bytes = 1u << 31;
  EXPECT_FALSE(host[0].board()->read(1, WorldRank(1), 1));
  const auto loss = await_loss(host[0]);
  EXPECT_EQ(loss.peer, WorldRank(1));
  EXPECT_EQ(loss.cause, "corrupt data: its board cell is malformed");
}

}  // namespace
}  // namespace qccl::shm
