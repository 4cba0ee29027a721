// The contract of transport.h, for every transport between processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "transport/routed_mesh_test.h"
#include "transport/shm/host_test.h"
#include "transport/tcp/tcp_support_test.h"

namespace qccl::transport_test {
namespace {

using shm::Host;
using tcp_test::TcpMesh;

struct Kind {
  const char* name;
  std::unique_ptr<Mesh> (*make)(int world);
};

template <Host::Linked linked>
std::unique_ptr<Mesh> make_host(int world) {
  return std::make_unique<Host>(world, linked);
}
template <Connect connect, int max_directly_read>
std::unique_ptr<Mesh> make_tcp(int world) {
  return std::make_unique<TcpMesh>(world, connect, TcpOptions{.max_directly_read = max_directly_read});
}

template <Connect connect>
std::unique_ptr<Mesh> make_several(int world) {
  return std::make_unique<TcpMesh>(world, connect, TcpOptions{}, 3);
}

template <int connections, int max_directly_read>
std::unique_ptr<Mesh> make_encrypted(int world) {
  return std::make_unique<TcpMesh>(world, tcp_pair, TcpOptions{.max_directly_read = max_directly_read}, connections,
                                   true);
}

template <int ranks_per_host>
std::unique_ptr<Mesh> make_routed(int world) {
  return std::make_unique<RoutedMesh>(world, ranks_per_host);
}

class TransportContract : public ::testing::TestWithParam<Kind> {
 protected:
  const std::unique_ptr<Mesh> pair_ = GetParam().make(2);
  Transport& own_ = (*pair_)[0];
  Transport& peer_ = (*pair_)[1];
};

INSTANTIATE_TEST_SUITE_P(All, TransportContract,
                         ::testing::Values(Kind{"shm_one_mapping", make_host<Host::Linked::one_mapping>},
                                           Kind{"shm_handshake", make_host<Host::Linked::handshake>},
                                           Kind{"unix_directly_read", make_tcp<unix_pair, 8>},
                                           Kind{"unix_through_epoll", make_tcp<unix_pair, 0>},
                                           Kind{"tcp_directly_read", make_tcp<tcp_pair, 8>},
                                           Kind{"tcp_through_epoll", make_tcp<tcp_pair, 0>},
                                           Kind{"three_unix_connections", make_several<unix_pair>},
                                           Kind{"three_tcp_connections", make_several<tcp_pair>},
                                           Kind{"encrypted_directly_read", make_encrypted<1, 8>},
                                           Kind{"encrypted_through_epoll", make_encrypted<1, 0>},
                                           Kind{"three_encrypted_connections", make_encrypted<3, 1>},
                                           Kind{"router_to_shm", make_routed<2>},
                                           Kind{"router_to_tcp", make_routed<1>}),
                         [](const auto& info) { return std::string(info.param.name); });

std::size_t random_size(std::mt19937& random) {
  const std::size_t limit = random() % 16 == 0 ? kMaxFrameBytes : random() % 2 == 0 ? 200 : 9000;
  return wire::kHeaderBytes + random() % (limit - wire::kHeaderBytes + 1);
}

// Sends `frames` of random sizes to every peer, checks those received, and releases up to `hold` of them in any order.
void exchange(Transport& own, int rank, int world, std::uint64_t frames, std::size_t hold) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(world)), got(static_cast<std::size_t>(world));
  std::vector<std::pair<ReceivedFrame, std::uint64_t>> held;
  const std::uint64_t total = frames * static_cast<std::uint64_t>(world - 1);
  std::uint64_t all_sent = 0, all_got = 0;
  while (going_well() && (all_sent < total || all_got < total || !held.empty() || !own.flushed())) {
    bool moved = false;
    for (int peer = 0; peer < world; ++peer) {
      auto& number = sent[static_cast<std::size_t>(peer)];
      if (peer == rank || number == frames || !send_frame(own, peer, random_size(random), number)) continue;
      ++number, ++all_sent, moved = true;
    }
    while (const auto frame = own.receive()) {
      moved = true, ++all_got;
      const std::uint64_t number = got[frame->peer.index()]++;
      ASSERT_TRUE(is_frame(frame->bytes, number)) << "frame " << number << " of rank " << frame->peer.value();
      held.emplace_back(*frame, number);
    }
    while (held.size() > random() % (hold + 1) || (all_got == total && !held.empty())) {
      std::swap(held[random() % held.size()], held.back());
      ASSERT_TRUE(is_frame(held.back().first.bytes, held.back().second));
      own.release(held.back().first);
      held.pop_back();
      moved = true;
    }
    moved |= own.progress();
    if (!moved) sleep_until_event(own);
  }
}

TEST_P(TransportContract, frames_of_random_sizes_cross_whole_and_in_order_and_can_be_held) {
  on_each_rank(2, [&](int rank) { exchange((*pair_)[rank], rank, 2, 1000, 30); });
}

TEST_P(TransportContract, eight_ranks_exchange_frames_with_each_other) {
  const auto mesh = GetParam().make(8);
  on_each_rank(8, [&](int rank) { exchange((*mesh)[rank], rank, 8, 60, 20); });
}

TEST_P(TransportContract, no_wake_up_is_lost_in_a_ping_pong_through_sleep) {
  on_each_rank(2, [&](int rank) {
    Transport& own = rank == 0 ? own_ : peer_;
    std::mt19937 random(static_cast<unsigned>(rank));
    for (std::uint64_t i = 0; i < 10'000; ++i) {
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

TEST_P(TransportContract, a_sender_that_sleeps_for_want_of_room_is_woken) {
  on_each_rank(2, [&](int rank) {
    Transport& own = rank == 0 ? own_ : peer_;
    std::mt19937 random(5);
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const std::size_t bytes = random() % 4 == 0 ? 5000 : 64;
      if (rank == 0) {
        send_when_there_is_room(own, 1, bytes, i);
      } else {
        const ReceivedFrame frame = await_frame(own);
        ASSERT_TRUE(is_frame(frame.bytes, i));
        own.release(frame);
      }
    }
    if (rank == 0) await(own, [&] { return own.flushed(); });
  });
}

TEST_P(TransportContract, a_sender_does_not_sleep_once_there_is_room) {
  std::uint64_t sent = 0, got = 0;
  while (send_frame(own_, 1, 5000, sent)) ++sent;
  while (peer_.progress()) {
    while (const auto frame = peer_.receive()) {
      EXPECT_TRUE(is_frame(frame->bytes, got++));
      peer_.release(*frame);
    }
  }
  EXPECT_GT(got, 0u);
  sleep_until_event(own_);
}

TEST_P(TransportContract, a_frame_may_be_shorter_than_its_reservation_or_not_sent_at_all) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(own_.reserve(WorldRank(1), 5000, TrafficClass::data).bytes().size(), 5000u) << "none came back";
  }
  Reservation room = own_.reserve(WorldRank(1), 5000, TrafficClass::data);
  write_frame(room.bytes().first(81), 3);
  own_.commit(std::move(room), 81, {});
  EXPECT_FALSE(room);
  const ReceivedFrame frame = await_frame(peer_);
  EXPECT_EQ(frame.bytes.size(), 81u);
  EXPECT_TRUE(is_frame(frame.bytes, 3));
  EXPECT_FALSE(peer_.receive());
}

TEST_P(TransportContract, a_frames_payload_may_lie_elsewhere) {
  const std::vector<std::byte> frame = make_frame(50'000, 4);
  Reservation room = own_.reserve(WorldRank(1), frame.size(), TrafficClass::data);
  std::ranges::copy(ConstBytes(frame).first(wire::kHeaderBytes), room.bytes().begin());
  own_.commit(std::move(room), wire::kHeaderBytes, ConstBytes(frame).subspan(wire::kHeaderBytes));
  EXPECT_TRUE(is_frame(await_frame(peer_).bytes, 4));
}

TEST_P(TransportContract, several_rooms_are_sent_in_any_order_or_not_at_all) {
  std::vector<Reservation> rooms;
  for (std::uint64_t i = 0; i < 4; ++i) {
    rooms.push_back(own_.reserve(WorldRank(1), 200, TrafficClass::data));
    write_frame(rooms[i].bytes(), i);
    EXPECT_EQ(rooms[i].peer(), WorldRank(1));
  }
  for (const std::size_t i : {2u, 0u, 3u}) own_.commit(std::move(rooms[i]), 200, {});
  rooms.clear();
  own_.progress();
  for (const std::uint64_t i : {2u, 0u, 3u}) {
    const ReceivedFrame frame = await_frame(peer_);
    ASSERT_TRUE(is_frame(frame.bytes, i)) << i;
    peer_.release(frame);
  }
  EXPECT_FALSE(peer_.receive());
}

TEST_P(TransportContract, frames_written_by_others_cross_in_the_order_in_which_they_are_sent) {
  FrameRooms* const own = own_.host_memory().rooms;
  EXPECT_EQ(own != nullptr, own_.kind(WorldRank(1)) == std::string("shm"));
  if (own == nullptr) return;
  std::vector<Reservation> rooms;
  for (int i = 0; i < 3; ++i) rooms.push_back(own->hold(WorldRank(1), 100'000));
  const auto lies_in = [](const FrameRooms::Memory& each, ConstBytes bytes) {
    return bytes.data() >= each.bytes.data() && bytes.data() + bytes.size() <= each.bytes.data() + each.bytes.size();
  };
  EXPECT_TRUE(lies_in(own->memory().front(), rooms[0].bytes()));
  for (const std::size_t i : {2u, 0u}) {
    write_frame(rooms[i].bytes(), i);
    own_.commit(std::move(rooms[i]), 100'000, {});
  }
  rooms.clear();
  for (const std::size_t i : {2u, 0u}) {
    const ReceivedFrame frame = await_frame(peer_);
    EXPECT_TRUE(is_frame(frame.bytes, i));
    EXPECT_EQ(frame.bytes.size(), 100'000u);
    EXPECT_TRUE(lies_in(peer_.host_memory().rooms->memory().front(), frame.bytes));
    peer_.release(frame);
  }
  Reservation late = own->hold(WorldRank(1), 100'000);
  own_.disconnect(WorldRank(1));
  own_.commit(std::move(late), 100'000, {});
  EXPECT_FALSE(late);
  EXPECT_FALSE(own->hold(WorldRank(1), 100'000));
}

TEST_P(TransportContract, a_receiver_that_does_not_receive_stops_data_but_not_control) {
  std::uint64_t sent = 0;
  while (sent < 100 && send_frame(own_, 1, kMaxFrameBytes, sent)) ++sent;
  EXPECT_GE(sent, 4u);
  EXPECT_LT(sent, 64u) << "data has no bound";
  ASSERT_TRUE(send_frame(own_, 1, 1000, sent++, TrafficClass::control));
  EXPECT_FALSE(send_frame(own_, 1, kMaxFrameBytes, 0)) << "control must not make room for data";
  for (std::uint64_t i = 0; i < sent; ++i) {
    const auto frame = await(peer_, [&] {
      own_.progress();
      return peer_.receive();
    });
    ASSERT_TRUE(frame && is_frame(frame->bytes, i)) << i;
    peer_.release(*frame);
  }
  EXPECT_TRUE(own_.flushed());
  EXPECT_TRUE(send_frame(own_, 1, kMaxFrameBytes, 0));
}

// ---- sleeping

TEST_P(TransportContract, wake_ends_the_sleep_of_another_thread_or_the_next_one) {
  own_.wake();
  sleep_until_event(own_);
  std::atomic<bool> sleeps{false};
  std::thread sleeper([&] {
    sleeps = true;
    sleep_until_event(own_);
  });
  while (!sleeps) std::this_thread::yield();
  own_.wake();
  sleeper.join();
}

TEST_P(TransportContract, a_sleep_ends_at_its_deadline) {
  const TimePoint deadline = steady.now() + 2ms;
  while (steady.now() < deadline) own_.sleep(deadline, steady);
  EXPECT_FALSE(own_.receive());
}

TEST_P(TransportContract, a_sleep_ends_at_once_if_there_is_a_frame_to_hand_out) {
  ASSERT_TRUE(send_frame(own_, 1, 64, 0) && send_frame(own_, 1, 64, 1));
  own_.progress();
  peer_.release(await_frame(peer_));
  peer_.progress();
  peer_.sleep(kForever, steady);
  EXPECT_TRUE(peer_.receive());
}

// ---- losses

TEST_P(TransportContract, a_closed_peer_is_lost_after_the_frames_it_sent) {
  ASSERT_TRUE(send_frame(peer_, 0, 100, 1));
  ASSERT_TRUE(send_frame(peer_, 0, 20'000, 2));
  peer_.progress();
  EXPECT_TRUE(peer_.flushed());
  peer_.close();
  peer_.close();
  // Until this rank knows. A reservation that it holds stays valid.
  const auto knows = [&] {
    const Reservation room = own_.reserve(WorldRank(1), 64, TrafficClass::control);
    own_.progress();
    return !room;
  };
  for (const TimePoint limit = wait_limit(); !knows();) ASSERT_LT(steady.now(), limit);
  for (const std::uint64_t number : {1, 2}) {
    EXPECT_FALSE(own_.next_loss());
    const auto frame = own_.receive();
    ASSERT_TRUE(frame && is_frame(frame->bytes, number));
    own_.release(*frame);
  }
  const auto loss = own_.next_loss();
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->peer, WorldRank(1));
  EXPECT_EQ(loss->cause, "closed the connection (end of file)");
  EXPECT_EQ(loss->end, Transport::End::by_peer);
  EXPECT_FALSE(own_.next_loss()) << "reported twice";
  EXPECT_FALSE(own_.reserve(WorldRank(1), 64, TrafficClass::control));
  EXPECT_FALSE(own_.progress());
}

TEST_P(TransportContract, a_lost_peer_wakes_a_sleeping_rank_and_shows_to_one_that_never_sleeps) {
  const auto mesh = GetParam().make(3);
  (*mesh)[2].close();
  EXPECT_EQ(await_loss((*mesh)[1]).peer, WorldRank(2));
  const TimePoint limit = wait_limit();
  std::optional<Transport::PeerLoss> loss;
  while (!(loss = (*mesh)[0].next_loss()) && steady.now() < limit) (*mesh)[0].progress();
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->peer, WorldRank(2));
}

// The peer keeps sending: closing the connection at once could reset it and lose the last frame.
TEST_P(TransportContract, a_disconnected_peer_gets_all_that_was_sent_then_end_of_file) {
  ASSERT_TRUE(send_frame(peer_, 0, 100, 7));
  own_.progress();
  std::uint64_t sent = 0;
  while (send_frame(own_, 1, kMaxFrameBytes, sent)) ++sent;
  ASSERT_TRUE(send_frame(own_, 1, 100, sent, TrafficClass::control));
  own_.disconnect(WorldRank(1));
  EXPECT_FALSE(own_.reserve(WorldRank(1), 100, TrafficClass::control));
  std::uint64_t received = 0;
  std::optional<Transport::PeerLoss> loss;
  for (const TimePoint limit = wait_limit(); !loss && steady.now() < limit; loss = peer_.next_loss()) {
    own_.progress();
    EXPECT_FALSE(own_.receive());
    peer_.progress();
    send_frame(peer_, 0, 100, 7);
    while (const auto frame = peer_.receive()) {
      EXPECT_TRUE(is_frame(frame->bytes, received++));
      peer_.release(*frame);
    }
  }
  EXPECT_EQ(received, sent + 1);
  ASSERT_TRUE(loss);
  EXPECT_FALSE(own_.next_loss()) << "this rank ended the connection itself";
  EXPECT_TRUE(own_.flushed());
}

TEST_P(TransportContract, a_lost_peer_that_is_disconnected_is_not_reported) {
  ASSERT_TRUE(send_frame(peer_, 0, 100, 1));
  peer_.close();
  for (int step = 0; step < 10'000; ++step) own_.progress();
  own_.disconnect(WorldRank(1));
  EXPECT_FALSE(own_.receive());
  EXPECT_FALSE(own_.next_loss());
}

}  // namespace
}  // namespace qccl::transport_test
