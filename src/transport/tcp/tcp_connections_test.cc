// Several connections to a peer.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "transport/tcp/tcp_support_test.h"

namespace qccl::tcp_test {
namespace {

// An endpoint of rank 0 with two connections to rank 1, which end in sockets of the test.
class TcpConnections : public ::testing::Test, public EndpointMesh {
 protected:
  TcpConnections() {
    std::vector<std::vector<secure::Stream>> sockets(2);
    for (os::Fd& peer : peers_) {
      auto pair = unix_pair();
      sockets[1].push_back(std::move(pair.first));
      peer = std::move(pair.second);
    }
    endpoints_.push_back(make_tcp_endpoint(add_poller(), {}, std::move(sockets)).take_or_throw());
  }

  Endpoint& own() { return *endpoints_.front(); }
  void write(std::size_t connection, ConstBytes bytes) {
    ASSERT_TRUE(os::write_exactly(peers_[connection], bytes, wait_limit(), steady).ok());
  }
  // Frame `number` of the link, with that number as its contents.
  void write_numbered(std::size_t connection, std::uint32_t number, std::size_t payload_bytes = 100) {
    auto frame = make_frame(payload_bytes, number);
    wire::set_frame_number(frame.data(), number);
    write(connection, frame);
  }
  void write_last(std::size_t connection) {
    std::vector<std::byte> frame(wire::kHeaderBytes);
    wire::encode_header({.kind = wire::FrameKind::last}, frame.data());
    write(connection, frame);
  }
  void expect_frame(std::uint64_t number, std::size_t payload_bytes = 100) {
    const ReceivedFrame frame = await_frame(own());
    EXPECT_TRUE(is_frame(frame.bytes, payload_bytes, number)) << "frame " << number;
    own().release(frame);
  }
  // What rank 1 finds on a connection now.
  std::vector<std::byte> read_all(std::size_t connection) {
    std::vector<std::byte> all(1 << 21);
    const os::IoResult io = os::read_some(peers_[connection].get(), all);
    all.resize(io.bytes);
    return all;
  }

  os::Fd peers_[2];
};

TEST_F(TcpConnections, frames_come_in_the_order_of_their_numbers) {
  write_numbered(1, 1);
  write_numbered(1, 2);
  own().progress();
  EXPECT_FALSE(own().receive()) << "frame 0 has not come";
  write_numbered(0, 0);
  for (const std::uint64_t number : {0, 1, 2}) expect_frame(number);
  write_numbered(0, 4);
  write_numbered(1, 3);
  for (const std::uint64_t number : {3, 4}) expect_frame(number);
}

TEST_F(TcpConnections, a_connection_that_waits_for_another_is_not_read_without_bound) {
  std::uint32_t number = 1;
  const auto frame = make_frame(100'000, 0);
  std::size_t taken = 0;
  // The sockets hold some frames of their own; the endpoint takes 1 MiB and a read more.
  for (bool is_full = false; !is_full && number < 1000; ++number) {
    auto numbered = frame;
    wire::set_frame_number(numbered.data(), number);
    for (std::size_t sent = 0; sent < numbered.size() && !is_full;) {
      const auto io = os::write_some(peers_[1].get(), ConstBytes(numbered).subspan(sent));
      sent += io.bytes;
      taken += io.bytes;
      is_full = io.bytes == 0 && !own().progress();
    }
  }
  EXPECT_LT(taken, 4u << 20);
  EXPECT_GT(taken, 1u << 20);
}

TEST_F(TcpConnections, large_frames_go_where_the_backlog_is_least_and_small_ones_on_the_first) {
  for (const std::uint64_t number : {0, 1, 2}) ASSERT_TRUE(send_frame(own(), 1, 100, number));
  own().progress();
  EXPECT_EQ(read_all(0).size(), 300u);
  EXPECT_TRUE(read_all(1).empty());
  for (const std::uint64_t number : {3, 4}) ASSERT_TRUE(send_frame(own(), 1, 90'000, number));
  own().progress();
  const auto first = read_all(0), second = read_all(1);
  EXPECT_TRUE(is_frame(first, 90'000 - wire::kHeaderBytes, 3));
  EXPECT_TRUE(is_frame(second, 90'000 - wire::kHeaderBytes, 4));
  EXPECT_EQ(wire::decode_header(second.data()).take_or_throw().number, 4u);
}

TEST_F(TcpConnections, the_loss_of_one_loses_the_peer_after_the_frames_that_have_come) {
  write_numbered(0, 0);
  write_numbered(0, 1);
  peers_[1].reset();
  expect_frame(0);
  expect_frame(1);
  const auto loss = await_loss(own());
  EXPECT_EQ(loss.peer, WorldRank(1));
  EXPECT_NE(loss.cause.find("closed"), std::string::npos) << loss.cause;
  EXPECT_FALSE(own().reserve(WorldRank(1), 100, TrafficClass::control));
  EXPECT_TRUE(os::peer_closed(peers_[0].get()));
}

TEST_F(TcpConnections, frames_behind_a_lost_one_never_come) {
  write_numbered(0, 1);
  own().progress();
  peers_[1].reset();
  EXPECT_EQ(await_loss(own()).peer, WorldRank(1));
  EXPECT_FALSE(own().receive());
}

TEST_F(TcpConnections, a_peer_that_leaves_in_good_order_is_lost_with_its_last_connection) {
  write_numbered(1, 1);
  write_last(1);
  peers_[1].reset();
  own().progress();
  own().progress();
  EXPECT_FALSE(own().next_loss());
  write_numbered(0, 0);
  write_last(0);
  peers_[0].reset();
  expect_frame(0);
  expect_frame(1);
  EXPECT_EQ(await_loss(own()).peer, WorldRank(1));
}

TEST_F(TcpConnections, a_rank_that_leaves_says_so_on_each_connection) {
  ASSERT_TRUE(send_frame(own(), 1, 90'000, 0));
  own().disconnect(WorldRank(1));
  while (going_well() && !own().flushed()) own().progress();
  EXPECT_EQ(read_all(0).size(), 90'000 + wire::kHeaderBytes);
  const auto last = read_all(1);
  ASSERT_EQ(last.size(), wire::kHeaderBytes);
  EXPECT_EQ(wire::decode_header(last.data()).take_or_throw().kind, wire::FrameKind::last);
}

TEST_F(TcpConnections, withdrawal_takes_back_frames_that_came_early) {
  std::vector<std::byte> memory(200'000);
  struct Everything final : PayloadPlacement {
    explicit Everything(std::vector<std::byte>& memory) : memory(memory) {}
    std::byte* find_destination(WorldRank, ConstBytes) override { return memory.data(); }
    std::vector<std::byte>& memory;
  } placement(memory);
  own().set_placement(&placement);
  auto frame = make_frame(memory.size(), 1);
  wire::set_frame_number(frame.data(), 1);
  for (std::size_t sent = 0; sent < frame.size();) {
    sent += os::write_some(peers_[1].get(), ConstBytes(frame).subspan(sent)).bytes;
    own().progress();
  }
  own().progress();
  EXPECT_EQ(memory.back(), frame.back()) << "the payload should lie there";
  own().withdraw();
  std::ranges::fill(memory, std::byte{0});
  own().set_placement(nullptr);
  write_numbered(0, 0);
  expect_frame(0);
  expect_frame(1, memory.size());
}

TEST(TcpConnection, one_alone_has_no_end_of_its_own) {
  Half half;
  std::vector<std::byte> frame(wire::kHeaderBytes);
  wire::encode_header({.kind = wire::FrameKind::last}, frame.data());
  half.write(frame);
  const auto loss = await_loss(*half);
  EXPECT_NE(loss.cause.find("one of several connections"), std::string::npos) << loss.cause;
}

}  // namespace
}  // namespace qccl::tcp_test
