#include "transport/shm/shm_endpoint.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "transport/shm/ring.h"
#include "transport/shm/test_host.h"

namespace qccl::shm {
namespace {

using testing::Host;
using testing::is_frame;
using testing::on_each_rank;
using testing::patience;
using testing::send_frame;
using namespace std::chrono_literals;

// Sleeps until something may have happened. A lost wake-up fails the test; every loop below ends once the test has
// failed.
void doze(Transport& transport) {
  const SteadyClock clock;
  const TimePoint limit = patience();
  transport.sleep(limit, clock);
  EXPECT_LT(clock.now(), limit) << "nobody rang";
}

bool going_well() { return !::testing::Test::HasFailure(); }

// Returns an empty frame if the test has failed meanwhile.
ReceivedFrame await_frame(Transport& transport) {
  while (going_well()) {
    if (auto frame = transport.receive()) return *frame;
    if (!transport.progress()) doze(transport);
  }
  return {};
}

void send_when_there_is_room(Transport& transport, int peer, std::size_t bytes, std::uint64_t number) {
  while (going_well() && !send_frame(transport, peer, bytes, number)) {
    if (!transport.progress()) doze(transport);
  }
}

std::size_t random_size(std::mt19937& random) {
  const std::size_t limit = random() % 16 == 0 ? kMaxFrameBytes : random() % 2 == 0 ? 100 : 9000;
  return 8 + random() % (limit - 7);
}

class ShmEndpoint : public ::testing::TestWithParam<Host::Linked> {};

INSTANTIATE_TEST_SUITE_P(Linked, ShmEndpoint, ::testing::Values(Host::Linked::one_mapping, Host::Linked::handshake),
                         [](const auto& info) {
                           return info.param == Host::Linked::one_mapping ? "one_mapping" : "handshake";
                         });

// Every rank sends `frames` of random sizes to every peer and checks the ones it receives, holding up to `hold` frames
// and releasing them in any order.
void exchange(Transport& transport, int rank, int world, std::uint64_t frames, std::size_t hold) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(world)), got(static_cast<std::size_t>(world));
  std::vector<std::pair<ReceivedFrame, std::uint64_t>> held;
  const std::uint64_t total = frames * static_cast<std::uint64_t>(world - 1);
  std::uint64_t all_sent = 0, all_got = 0;
  while (going_well() && (all_sent < total || all_got < total)) {
    bool moved = false;
    for (int peer = 0; peer < world; ++peer) {
      auto& number = sent[static_cast<std::size_t>(peer)];
      if (peer == rank || number == frames || !send_frame(transport, peer, random_size(random), number)) continue;
      ++number, ++all_sent, moved = true;
    }
    while (const auto frame = transport.receive()) {
      moved = true, ++all_got;
      const std::uint64_t number = got[frame->peer.index()]++;
      ASSERT_TRUE(is_frame(frame->bytes, number)) << "frame " << number << " of rank " << frame->peer.value();
      held.emplace_back(*frame, number);
    }
    while (held.size() > random() % (hold + 1) || (all_got == total && !held.empty())) {
      const std::size_t which = random() % held.size();
      ASSERT_TRUE(is_frame(held[which].first.bytes, held[which].second));
      transport.release(held[which].first);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      moved = true;
    }
    if (!moved && !transport.progress()) doze(transport);
  }
}

TEST_P(ShmEndpoint, frames_of_random_sizes_cross_in_both_directions) {
  Host host(2, GetParam());
  on_each_rank(2, [&](int rank) { exchange(host[rank], rank, 2, 2000, 30); });
}

TEST_P(ShmEndpoint, eight_ranks_exchange_frames_with_each_other) {
  Host host(8, GetParam());
  on_each_rank(8, [&](int rank) { exchange(host[rank], rank, 8, 60, 20); });
}

TEST_P(ShmEndpoint, few_large_slots_are_enough) {
  Host host(2, GetParam(), 64);
  on_each_rank(2, [&](int rank) { exchange(host[rank], rank, 2, 1000, 50); });
}

TEST_P(ShmEndpoint, no_wake_up_is_lost_in_a_ping_pong_through_sleep) {
  Host host(2, GetParam());
  constexpr std::uint64_t kRounds = 20'000;
  on_each_rank(2, [&](int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    Transport& own = host[rank];
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      if (rank == 0) send_when_there_is_room(own, 1, 64, i);
      // Sometimes look a while longer before sleeping, so that the two meet at every point.
      for (auto spins = random() % 64; spins > 0 && !own.progress(); --spins) continue;
      const ReceivedFrame frame = await_frame(own);
      ASSERT_TRUE(is_frame(frame.bytes, i));
      own.release(frame);
      if (rank == 1) send_when_there_is_room(own, 0, 64, i);
    }
  });
}

TEST_P(ShmEndpoint, a_sender_that_sleeps_for_want_of_slots_is_rung_by_returns) {
  Host host(2, GetParam());
  constexpr std::uint64_t kFrames = 3000;
  on_each_rank(2, [&](int rank) {
    Transport& own = host[rank];
    std::mt19937 random(5);
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      const std::size_t bytes = random() % 4 == 0 ? 5000 : 32;
      if (rank == 0) {
        send_when_there_is_room(own, 1, bytes, i);
      } else {
        const ReceivedFrame frame = await_frame(own);
        ASSERT_TRUE(is_frame(frame.bytes, i));
        own.release(frame);
      }
    }
  });
}

TEST_P(ShmEndpoint, a_board_operation_wakes_ranks_that_sleep) {
  constexpr int kRanks = 3;
  constexpr std::uint64_t kGroup = 9, kSequences = 4000;
  Host host(kRanks, GetParam());
  for (int rank = 0; rank < kRanks; ++rank) ASSERT_TRUE(host[rank].board()->open(kGroup));
  on_each_rank(kRanks, [&](int rank) {
    Transport& own = host[rank];
    std::array<std::byte, 40> payload;
    for (std::uint64_t sequence = 1; sequence <= kSequences; ++sequence) {
      testing::fill_frame(payload, sequence + static_cast<std::uint64_t>(rank));
      own.board()->publish(kGroup, sequence, sequence, payload);
      own.board()->ring(kGroup);
      for (int peer = 0; peer < kRanks; ++peer) {
        std::optional<ExchangeCell> cell;
        while (going_well() && !(cell = own.board()->read(kGroup, WorldRank(peer), sequence))) doze(own);
        ASSERT_TRUE(cell);
        ASSERT_TRUE(is_frame({cell->payload, cell->payload_bytes}, sequence + static_cast<std::uint64_t>(peer)));
      }
    }
  });
}

TEST_P(ShmEndpoint, a_closed_peer_is_lost_after_the_frames_it_sent) {
  Host host(2, GetParam());
  ASSERT_TRUE(send_frame(host[1], 0, 100, 1));
  ASSERT_TRUE(send_frame(host[1], 0, kMaxFrameBytes, 2));
  EXPECT_TRUE(host[1].flushed());
  host[1].close();
  host[1].close();
  std::optional<Transport::PeerLoss> loss;
  std::vector<ReceivedFrame> frames;
  while (going_well() && !(loss = host[0].next_loss())) {
    if (const auto frame = host[0].receive()) {
      frames.push_back(*frame);
    } else {
      doze(host[0]);
    }
  }
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->peer, WorldRank(1));
  EXPECT_EQ(loss->cause, "closed the connection (end of file)");
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_TRUE(is_frame(frames[0].bytes, 1));
  EXPECT_TRUE(is_frame(frames[1].bytes, 2));
  for (const auto& frame : frames) host[0].release(frame);
  EXPECT_FALSE(host[0].next_loss());
  EXPECT_TRUE(host[0].reserve(WorldRank(1), 64, TrafficClass::control).empty());
  EXPECT_FALSE(host[0].progress());
}

TEST(ShmEndpointAlone, a_lost_peer_shows_to_a_rank_that_never_sleeps) {
  Host host(3, Host::Linked::one_mapping);
  host[2].close();
  const SteadyClock clock;
  const TimePoint limit = patience();
  std::optional<Transport::PeerLoss> loss;
  while (!(loss = host[0].next_loss()) && clock.now() < limit) host[0].progress();
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->peer, WorldRank(2));
}

TEST(ShmEndpointAlone, frames_held_for_one_operation_do_not_stop_those_of_another) {
  Host host(2, Host::Linked::one_mapping);
  std::vector<ReceivedFrame> held;
  for (std::uint64_t i = 0; i < 3 * kMaxLargeSlots; ++i) {
    ASSERT_TRUE(send_frame(host[0], 1, kMaxFrameBytes, i)) << "frame " << i << " found no slot";
    ASSERT_TRUE(send_frame(host[0], 1, 64, i)) << "frame " << i << " found no slot";
    for (int frame = 0; frame < 2; ++frame) held.push_back(*host[1].receive());
  }
  for (std::uint64_t i = 0; i < held.size(); ++i) ASSERT_TRUE(is_frame(held[i].bytes, i / 2));
  for (const auto& frame : held) host[1].release(frame);
}

TEST(ShmEndpointAlone, control_frames_find_room_when_data_does_not) {
  Host host(2, Host::Linked::one_mapping);
  while (send_frame(host[0], 1, 64, 0)) continue;
  EXPECT_TRUE(send_frame(host[0], 1, 64, 1, TrafficClass::control));
}

TEST(ShmEndpointAlone, wake_ends_the_sleep_of_another_thread_or_the_next_one) {
  Host host(2, Host::Linked::one_mapping);
  host[0].wake();
  doze(host[0]);
  std::atomic<bool> sleeps{false};
  std::thread sleeper([&] {
    sleeps = true;
    doze(host[0]);
  });
  while (!sleeps) std::this_thread::yield();
  host[0].wake();
  sleeper.join();
}

TEST(ShmEndpointAlone, a_sleep_ends_at_its_deadline) {
  Host host(2, Host::Linked::one_mapping);
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + 2ms;
  while (clock.now() < deadline) host[0].sleep(deadline, clock);
  EXPECT_FALSE(host[0].receive());
}

TEST(ShmEndpointAlone, a_publication_does_not_wake_a_rank_outside_of_the_group) {
  Host host(2, Host::Linked::one_mapping);
  ASSERT_TRUE(host[0].board()->open(4));
  ASSERT_TRUE(host[1].arm());
  host[0].board()->publish(4, 1, 0, {});
  host[0].board()->ring(4);
  const auto& word = reinterpret_cast<Area*>(host.area(1))->sleep_word;
  EXPECT_EQ(word.phase & 1, 1u) << "rank 1 was rung";
  host[1].disarm();
  ASSERT_TRUE(host[1].board()->open(4));
  ASSERT_TRUE(host[1].arm());
  host[0].board()->publish(4, 2, 0, {});
  host[0].board()->ring(4);
  EXPECT_EQ(word.phase & 1, 0u) << "rank 1 was not rung";
  host[1].disarm();
}

TEST(ShmEndpointAlone, who_is_about_to_sleep_sees_what_has_arrived) {
  Host host(2, Host::Linked::one_mapping);
  ASSERT_TRUE(host[1].arm());
  host[1].disarm();
  ASSERT_TRUE(send_frame(host[0], 1, 64, 0));
  EXPECT_FALSE(host[1].arm());
  host[1].disarm();
}

TEST(ShmEndpointAlone, who_is_about_to_sleep_sees_once_the_cell_that_it_missed) {
  Host host(2, Host::Linked::one_mapping);
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(host[rank].board()->open(6));
  ASSERT_FALSE(host[1].board()->read(6, WorldRank(0), 1));
  host[0].board()->publish(6, 1, 0, {});
  host[0].board()->ring(6);
  EXPECT_FALSE(host[1].arm());
  host[1].disarm();
  EXPECT_TRUE(host[1].arm()) << "who does not read it is not kept awake for ever";
  host[1].disarm();
}

TEST(ShmEndpointAlone, who_is_about_to_sleep_sees_once_the_slots_that_it_missed) {
  Host host(2, Host::Linked::one_mapping);
  while (send_frame(host[0], 1, kMaxFrameBytes, 0)) continue;
  ASSERT_TRUE(host[0].arm());
  host[0].disarm();
  host[1].release(*host[1].receive());
  EXPECT_FALSE(host[0].arm());
  host[0].disarm();
  EXPECT_TRUE(host[0].arm()) << "who does not send is not kept awake for ever";
  host[0].disarm();
}

TEST(ShmEndpointAlone, a_loss_is_reported_after_the_frames_that_came_before_it) {
  Host host(2, Host::Linked::one_mapping);
  ASSERT_TRUE(send_frame(host[1], 0, 100, 1));
  host[1].close();
  const Bytes refused = host[0].reserve(WorldRank(1), 64, TrafficClass::control);
  ASSERT_FALSE(refused.empty()) << "rank 0 does not know yet";
  host[0].commit(0);
  const TimePoint limit = patience();
  const auto knows = [&] {
    host[0].progress();
    const bool has_room = !host[0].reserve(WorldRank(1), 64, TrafficClass::control).empty();
    if (has_room) host[0].commit(0);
    return !has_room;
  };
  while (!knows()) ASSERT_LT(SteadyClock().now(), limit);
  EXPECT_FALSE(host[0].next_loss());
  const auto frame = host[0].receive();
  ASSERT_TRUE(frame);
  EXPECT_TRUE(host[0].next_loss());
  host[0].release(*frame);
}

TEST(ShmEndpointAlone, a_peer_that_is_disconnected_gets_all_that_was_sent_then_end_of_file) {
  Host host(2, Host::Linked::one_mapping);
  ASSERT_TRUE(send_frame(host[1], 0, 100, 1));
  host[0].progress();
  ASSERT_TRUE(send_frame(host[0], 1, 100, 2));
  host[0].disconnect(WorldRank(1));
  EXPECT_TRUE(host[0].reserve(WorldRank(1), 64, TrafficClass::control).empty());
  EXPECT_FALSE(host[0].receive());
  EXPECT_FALSE(host[0].next_loss()) << "this rank ended it itself";
  const auto frame = host[1].receive();
  ASSERT_TRUE(frame && is_frame(frame->bytes, 2));
  host[1].release(*frame);
  const TimePoint limit = patience();
  while (!host[1].next_loss()) {
    ASSERT_LT(SteadyClock().now(), limit);
    host[1].progress();
  }
}

TEST(ShmEndpointAlone, a_board_needs_all_ranks_of_the_world) {
  Host host(2, Host::Linked::one_mapping);
  EXPECT_NE(host[0].board(), nullptr);
  EXPECT_TRUE(host[0].is_local(WorldRank(1)));
  EXPECT_STREQ(host[0].kind(WorldRank(1)), "shm");
  auto poller = os::Poller::create();
  auto exports = create_shm_exports(0, 2);
  ASSERT_TRUE(poller.ok() && !exports.unsupported_reason);
  auto alone = make_shm_endpoint(*poller, {.world = 3}, std::move(exports), {});
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ((*alone)->board(), nullptr);
  EXPECT_FALSE((*alone)->is_local(WorldRank(1)));
}

// ---- a hostile peer

std::optional<Transport::PeerLoss> loss_seen_by(Transport& transport) {
  std::optional<Transport::PeerLoss> loss;
  while (going_well() && !(loss = transport.next_loss())) {
    EXPECT_FALSE(transport.receive());
    if (!transport.progress()) doze(transport);
  }
  return going_well() ? loss : Transport::PeerLoss{{}, "none"};
}

TEST(ShmEndpointAlone, a_malformed_descriptor_loses_the_peer_and_no_other) {
  for (const RingItem item : {RingItem{0xFFFF, 64}, RingItem{0, 0}, RingItem{0, 0xFFFFFFFF}, RingItem{70, 300'000}}) {
    Host host(3, Host::Linked::one_mapping);
    host.queue(2, 0).control().descriptors.words[0].store(pack_ring_word(1, item));
    const auto loss = loss_seen_by(host[0]);
    EXPECT_EQ(loss->peer, WorldRank(2));
    EXPECT_EQ(loss->cause.find("corrupt data: it sent"), 0u) << loss->cause;
    ASSERT_TRUE(send_frame(host[1], 0, 100, 7));
    const auto frame = host[0].receive();
    ASSERT_TRUE(frame);
    EXPECT_TRUE(is_frame(frame->bytes, 7));
    host[0].release(*frame);
    EXPECT_EQ(loss_seen_by(host[2])->peer, WorldRank(0));
  }
}

TEST(ShmEndpointAlone, a_malformed_return_loses_the_peer) {
  Host host(2, Host::Linked::one_mapping);
  host.queue(0, 1).control().returns.words[0].store(pack_ring_word(1, {3, 0}));
  EXPECT_TRUE(host[0].reserve(WorldRank(1), kMaxFrameBytes, TrafficClass::data).empty());
  const auto loss = loss_seen_by(host[0]);
  EXPECT_EQ(loss->peer, WorldRank(1));
  EXPECT_EQ(loss->cause, "corrupt data: it returned slot 3, which it does not have");
}

TEST(ShmEndpointAlone, a_malformed_board_cell_loses_the_peer) {
  Host host(2, Host::Linked::one_mapping);
  ASSERT_TRUE(host[0].board()->open(1));
  ASSERT_TRUE(host[1].board()->open(1));
  host[1].board()->publish(1, 1, 0, {});
  host[1].board()->ring(1);
  reinterpret_cast<Area*>(host.area(1))->cells[0].buffers[1].payload_bytes = 1u << 31;
  EXPECT_FALSE(host[0].board()->read(1, WorldRank(1), 1));
  EXPECT_EQ(loss_seen_by(host[0])->cause, "corrupt data: its board cell is malformed");
}

}  // namespace
}  // namespace qccl::shm
