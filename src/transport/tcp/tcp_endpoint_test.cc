#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp/tcp_support_test.h"

namespace qccl::tcp_test {
namespace {

struct Wiring {
  const char* name;
  os::SocketPair (*connect)();
  int max_directly_read;
};

class TcpWirings : public ::testing::TestWithParam<Wiring> {};

TEST_P(TcpWirings, random_frames_both_ways_arrive_whole_and_in_order) {
  auto pair = GetParam().connect();
  const TcpOptions options{.max_directly_read = GetParam().max_directly_read};
  Side a(1, std::move(pair.first), options), b(0, std::move(pair.second), options);
  const auto a_sizes = random_sizes(500, 1), b_sizes = random_sizes(500, 2);
  Exchange from_a(a, a_sizes, b_sizes), from_b(b, b_sizes, a_sizes);
  for (int step = 0; step < kStepLimit && !(from_a.done() && from_b.done()); ++step) {
    from_a.step();
    from_b.step();
  }
  EXPECT_TRUE(from_a.done() && from_b.done());
}

TEST_P(TcpWirings, two_threads_that_sleep_exchange_everything) {
  auto pair = GetParam().connect();
  const TcpOptions options{.max_directly_read = GetParam().max_directly_read};
  Side a(1, std::move(pair.first), options), b(0, std::move(pair.second), options);
  const auto a_sizes = random_sizes(300, 3), b_sizes = random_sizes(300, 4);
  const auto run = [](Side& side, const std::vector<std::size_t>& out, const std::vector<std::size_t>& in) {
    Exchange exchange(side, out, in);
    while (!exchange.done() || !side->flushed()) {
      if (!exchange.step()) side->sleep(kForever, steady);
    }
  };
  std::thread other([&] { run(b, b_sizes, a_sizes); });
  run(a, a_sizes, b_sizes);
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Tcp, TcpWirings,
                         ::testing::Values(Wiring{"unix", unix_pair, 8}, Wiring{"tcp", tcp_pair, 8},
                                           Wiring{"unix_through_epoll", unix_pair, 0},
                                           Wiring{"tcp_through_epoll", tcp_pair, 0}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Tcp, a_reader_that_does_not_read_stops_data_but_not_control) {
  auto pair = unix_pair();
  Side a(1, std::move(pair.first)), b(0, std::move(pair.second));
  std::vector<std::size_t> sizes;
  while (a.send(kMaxPayloadBytes, sizes.size())) sizes.push_back(kMaxPayloadBytes);
  EXPECT_GE(sizes.size(), 4u);
  EXPECT_LT(sizes.size(), 64u) << "the queue has no bound";
  EXPECT_FALSE(a->flushed());
  ASSERT_TRUE(a.send(1000, sizes.size(), TrafficClass::control));
  sizes.push_back(1000);
  EXPECT_FALSE(a.send(kMaxPayloadBytes, 0)) << "control must not make room for data";

  Exchange none_from_a(a, {}, {}), from_b(b, {}, sizes);
  for (int step = 0; step < kStepLimit && !from_b.done(); ++step) {
    none_from_a.step();
    from_b.step();
  }
  EXPECT_TRUE(from_b.done());
  EXPECT_TRUE(a->flushed());
  EXPECT_TRUE(a.send(kMaxPayloadBytes, 0));
}

TEST(Tcp, control_frames_have_a_bound_too) {
  auto pair = unix_pair();
  Side a(1, std::move(pair.first));
  std::size_t sent = 0;
  while (sent < 1'000'000 && a.send(0, sent, TrafficClass::control)) ++sent;
  EXPECT_GT(sent, 1000u);
  EXPECT_LT(sent, 1'000'000u);
}

TEST(Tcp, an_engine_that_does_not_receive_stops_the_sender) {
  auto pair = unix_pair();
  Side a(1, std::move(pair.first)), b(0, std::move(pair.second), {.receive_queue_bytes = 100'000});
  std::size_t sent = 0, idle = 0;
  while (idle < 10 && sent < 10'000) {
    bool moved = a->progress();
    moved |= b->progress();
    while (a.send(10'000, sent)) ++sent, moved = true;
    idle = moved ? 0 : idle + 1;
  }
  EXPECT_LT(sent, 1000u);
  std::size_t received = 0;
  for (; received < sent; ++received) {
    a->progress();
    const auto frame = b.next_frame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_TRUE(is_frame(frame->bytes, 10'000, received));
    b->release(*frame);
  }
}

TEST(Tcp, frames_can_be_held_and_released_in_any_order) {
  auto pair = unix_pair();
  Side a(1, std::move(pair.first)), b(0, std::move(pair.second));
  const auto sizes = random_sizes(200, 5);
  std::vector<ReceivedFrame> held;
  for (std::size_t sent = 0; held.size() < sizes.size();) {
    if (sent < sizes.size() && a.send(sizes[sent], sent)) ++sent;
    a->progress();
    b->progress();
    while (auto frame = b->receive()) held.push_back(*frame);
  }
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(6));
  for (const std::size_t index : order) {
    EXPECT_TRUE(is_frame(held[index].bytes, sizes[index], index));
    b->release(held[index]);
  }
}

TEST(Tcp, a_frame_that_trickles_in_byte_by_byte_is_one_frame) {
  auto pair = unix_pair();
  Side side(0, std::move(pair.second));
  const auto frame = make_frame(300, 9);
  for (std::size_t i = 0; i < frame.size(); ++i) {
    EXPECT_FALSE(side->receive().has_value());
    write_all(pair.first, ConstBytes(frame).subspan(i, 1));
    side->progress();
  }
  const auto received = side->receive();
  ASSERT_TRUE(received.has_value());
  EXPECT_TRUE(is_frame(received->bytes, 300, 9));
}

TEST(Tcp, an_unused_reservation_sends_nothing_and_a_short_one_only_its_part) {
  auto pair = unix_pair();
  Side a(1, std::move(pair.first)), b(0, std::move(pair.second));
  ASSERT_EQ(a->reserve(WorldRank(1), 5000, TrafficClass::data).size(), 5000u);
  a->commit(0);
  const Bytes room = a->reserve(WorldRank(1), 5000, TrafficClass::data);
  write_frame(room.first(wire::kHeaderBytes + 17), 3);
  a->commit(wire::kHeaderBytes + 17);
  const auto frame = b.next_frame();
  ASSERT_TRUE(frame.has_value());
  EXPECT_TRUE(is_frame(frame->bytes, 17, 3));
}

TEST(Tcp, all_that_was_flushed_before_close_arrives) {
  auto pair = tcp_pair();
  Side a(1, std::move(pair.first)), b(0, std::move(pair.second));
  std::size_t sent = 0;
  while (a.send(kMaxPayloadBytes, sent)) ++sent;
  std::vector<ReceivedFrame> received;
  for (int step = 0; step < kStepLimit && !a->flushed(); ++step) {
    a->progress();
    b->progress();
    while (auto frame = b->receive()) received.push_back(*frame);
  }
  ASSERT_TRUE(a->flushed());
  auto closed = std::async(std::launch::async, [&] {
    a->close();
    a->close();
    return !a.send(10, 0);
  });
  // Data that a no longer reads must not reset the connection before the rest of its frames.
  while (received.size() < sent) {
    b.send(10, 0);
    const auto frame = b.next_frame();
    ASSERT_TRUE(frame.has_value()) << received.size() << " of " << sent;
    received.push_back(*frame);
  }
  EXPECT_TRUE(closed.get());
  for (std::size_t i = 0; i < sent; ++i) EXPECT_TRUE(is_frame(received[i].bytes, kMaxPayloadBytes, i));
  EXPECT_TRUE(b.next_loss().has_value());
}

TEST(Tcp, the_small_frames_of_a_burst_leave_without_being_asked_for_before_a_sleep) {
  auto pair = unix_pair();
  Side a(1, std::move(pair.first)), b(0, std::move(pair.second));
  for (const std::uint64_t sequence : {0, 1, 2}) ASSERT_TRUE(a.send(10, sequence));
  a->sleep(steady.now(), steady);
  EXPECT_TRUE(a->flushed());
  for (const std::uint64_t sequence : {0, 1, 2}) {
    const auto frame = b.next_frame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_TRUE(is_frame(frame->bytes, 10, sequence));
  }
}

// Both peers share a link: gathered small frames would otherwise leave it after the long frame.
TEST(Tcp, the_small_frames_of_a_burst_leave_before_a_long_one_to_another_peer) {
  auto near = unix_pair(), far = unix_pair();
  std::vector<os::Fd> sockets(3);
  sockets[1] = std::move(near.first);
  sockets[2] = std::move(far.first);
  Side a(std::move(sockets));
  Side b(0, std::move(near.second));
  for (const std::uint64_t sequence : {0, 1, 2}) ASSERT_TRUE(a.send_to(1, 10, sequence));
  EXPECT_FALSE(a->flushed());
  ASSERT_TRUE(a.send_to(2, 20'000, 0));
  for (const std::uint64_t sequence : {0, 1, 2}) {
    const auto frame = b.next_frame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_TRUE(is_frame(frame->bytes, 10, sequence));
  }
}

TEST(Tcp, sleep_ends_at_the_deadline_by_wake_and_not_at_all_while_frames_wait) {
  auto pair = unix_pair();
  Side a(1, std::move(pair.first)), b(0, std::move(pair.second));
  const auto begin = steady.now();
  a->sleep(begin + 2ms, steady);
  EXPECT_GE(steady.now() - begin, 2ms);
  a->wake();
  a->sleep(kForever, steady);
  std::thread waker([&] { a->wake(); });
  a->sleep(kForever, steady);
  waker.join();

  ASSERT_TRUE(b.send(10, 0) && b.send(10, 1));
  b->progress();
  ASSERT_TRUE(a.next_frame().has_value());
  a->sleep(kForever, steady);  // the second frame waits for receive()
  EXPECT_TRUE(a.next_frame().has_value());
}

void exchange_with_many_peers(const TcpOptions& options) {
  constexpr int kPeers = 12;
  std::vector<os::Fd> sockets(kPeers + 1);
  std::vector<std::unique_ptr<Side>> others;
  for (int rank = 1; rank <= kPeers; ++rank) {
    auto pair = unix_pair();
    sockets[static_cast<std::size_t>(rank)] = std::move(pair.first);
    others.push_back(std::make_unique<Side>(0, std::move(pair.second)));
  }
  Side hub(std::move(sockets), options);
  for (int rank = 1; rank <= kPeers; ++rank) {
    ASSERT_TRUE(others[static_cast<std::size_t>(rank - 1)]->send(20, static_cast<std::uint64_t>(rank)));
    ASSERT_TRUE(hub.send_to(rank, 30, static_cast<std::uint64_t>(rank)));
  }
  std::vector<int> senders;
  for (int i = 0; i < kPeers; ++i) {
    hub->sleep(kForever, steady);
    const auto frame = hub.next_frame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_TRUE(is_frame(frame->bytes, 20, frame->peer.index()));
    senders.push_back(frame->peer.value());
    hub->release(*frame);
  }
  std::sort(senders.begin(), senders.end());
  for (int rank = 1; rank <= kPeers; ++rank) {
    EXPECT_EQ(senders[static_cast<std::size_t>(rank - 1)], rank);
    const auto frame = others[static_cast<std::size_t>(rank - 1)]->next_frame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_TRUE(is_frame(frame->bytes, 30, static_cast<std::uint64_t>(rank)));
  }
  others[4].reset();
  const auto loss = hub.next_loss();
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->peer, WorldRank(5));
}

TEST(Tcp, frames_of_many_peers_that_epoll_names_name_their_sender) { exchange_with_many_peers({}); }

TEST(Tcp, frames_of_many_peers_read_directly_name_their_sender) {
  exchange_with_many_peers({.max_directly_read = 100});
}

}  // namespace
}  // namespace qccl::tcp_test
