// The properties of TCP that transport_contract_test.cc does not cover: the stream, bursts, bounds.
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "transport/tcp/tcp_support_test.h"

namespace qccl::tcp_test {
namespace {

TEST(Tcp, control_frames_have_a_bound_too) {
  TcpMesh mesh(2);
  std::size_t sent = 0;
  while (sent < 1'000'000 && send_frame(mesh[0], 1, 64, sent, TrafficClass::control)) ++sent;
  EXPECT_GT(sent, 1000u);
  EXPECT_LT(sent, 1'000'000u);
}

TEST(Tcp, an_engine_that_does_not_receive_stops_the_sender) {
  TcpMesh mesh(2, unix_pair, {.receive_queue_bytes = 100'000});
  std::size_t sent = 0;
  for (int idle = 0; idle < 10 && sent < 10'000; ++idle) {
    if (mesh[0].progress()) idle = 0;
    if (mesh[1].progress()) idle = 0;
    while (send_frame(mesh[0], 1, 10'000, sent)) ++sent, idle = 0;
  }
  EXPECT_LT(sent, 1000u);
  for (std::size_t received = 0; received < sent; ++received) {
    mesh[0].progress();
    const ReceivedFrame frame = await_frame(mesh[1]);
    ASSERT_TRUE(is_frame(frame.bytes, received));
    mesh[1].release(frame);
  }
}

TEST(Tcp, a_frame_that_trickles_in_byte_by_byte_is_one_frame) {
  Half half;
  const auto frame = make_frame(300, 9);
  for (std::size_t i = 0; i < frame.size(); ++i) {
    EXPECT_FALSE(half->receive());
    half.write(ConstBytes(frame).subspan(i, 1));
    half->progress();
  }
  const auto received = half->receive();
  ASSERT_TRUE(received);
  EXPECT_TRUE(is_frame(received->bytes, 300, 9));
}

TEST(Tcp, all_that_was_flushed_before_close_arrives) {
  TcpMesh mesh(2, tcp_pair);
  std::size_t sent = 0;
  while (send_frame(mesh[0], 1, kMaxFrameBytes, sent)) ++sent;
  std::vector<ReceivedFrame> received;
  while (going_well() && !mesh[0].flushed()) {
    mesh[0].progress();
    mesh[1].progress();
    while (auto frame = mesh[1].receive()) received.push_back(*frame);
  }
  auto closed = std::async(std::launch::async, [&] {
    mesh[0].close();
    return !send_frame(mesh[0], 1, 100, 0);
  });
  // Data that a closing rank no longer reads must not reset the connection before the rest of its frames.
  while (going_well() && received.size() < sent) {
    send_frame(mesh[1], 0, 100, 0);
    received.push_back(await_frame(mesh[1]));
  }
  EXPECT_TRUE(closed.get());
  for (std::size_t i = 0; i < sent; ++i) EXPECT_TRUE(is_frame(received[i].bytes, kMaxPayloadBytes, i));
  EXPECT_EQ(await_loss(mesh[1]).peer, WorldRank(0));
}

void expect_three_small_frames(Endpoint& receiver) {
  for (const std::uint64_t number : {0, 1, 2}) {
    const ReceivedFrame frame = await_frame(receiver);
    EXPECT_TRUE(is_frame(frame.bytes, 10, number));
  }
}

TEST(Tcp, the_small_frames_of_a_burst_leave_before_a_sleep) {
  TcpMesh mesh(2);
  for (const std::uint64_t number : {0, 1, 2}) ASSERT_TRUE(send_frame(mesh[0], 1, 74, number));
  mesh[0].sleep(steady.now(), steady);
  EXPECT_TRUE(mesh[0].flushed());
  expect_three_small_frames(mesh[1]);
}

// Both peers share a link: gathered small frames would otherwise leave it after the long frame.
TEST(Tcp, the_small_frames_of_a_burst_leave_before_a_long_one_to_another_peer) {
  TcpMesh mesh(3);
  for (const std::uint64_t number : {0, 1, 2}) ASSERT_TRUE(send_frame(mesh[0], 1, 74, number));
  EXPECT_FALSE(mesh[0].flushed());
  ASSERT_TRUE(send_frame(mesh[0], 2, 20'000, 0));
  expect_three_small_frames(mesh[1]);
}

}  // namespace
}  // namespace qccl::tcp_test
