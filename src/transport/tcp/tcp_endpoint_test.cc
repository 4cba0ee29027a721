// The properties of TCP that transport_contract_test.cc does not cover: the stream, bursts, bounds, buffers, losses.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <string>

#include "transport/tcp/frame_stream.h"
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

// ---- buffers

TEST(FrameBufferPool, every_size_up_to_a_whole_frame_fits_and_begins_on_a_cache_line) {
  tcp::FrameBufferPool pool;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{512}, std::size_t{513}, std::size_t{65600}, std::size_t{65601}, kMaxFrameBytes}) {
    tcp::FrameBuffer* const buffer = pool.take(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
    for (std::size_t i = 0; i < bytes; ++i) buffer->data()[i] = std::byte{0xFF};
    pool.put_back(buffer);
  }
}

TEST(FrameBufferPool, hands_out_the_buffer_put_back_last) {
  tcp::FrameBufferPool pool;
  tcp::FrameBuffer* const first = pool.take(100);
  tcp::FrameBuffer* const second = pool.take(100);
  pool.put_back(second);
  pool.put_back(first);
  EXPECT_EQ(pool.take(200), first);
  EXPECT_EQ(pool.take(200), second);
}

// ---- losses

TEST(TcpLoss, a_peer_that_closes_mid_frame_is_lost_with_the_bytes_received_and_missing) {
  for (const std::size_t cut : {std::size_t{10}, std::size_t{64}, std::size_t{500}}) {
    Half half;
    half.write(ConstBytes(make_frame(936, 0)).first(cut));
    half.peer.reset();
    const std::string expected = std::to_string(cut) + " of " + (cut < 64 ? "64" : "1000") + " bytes";
    const auto loss = await_loss(*half);
    EXPECT_NE(loss.cause.find(expected), std::string::npos) << loss.cause;
  }
}

TEST(TcpLoss, a_reset_connection_is_named) {
  Half half(tcp_pair);
  const linger reset_on_close{1, 0};
  ASSERT_EQ(::setsockopt(half.peer.get(), SOL_SOCKET, SO_LINGER, &reset_on_close, sizeof(reset_on_close)), 0);
  half.peer.reset();
  const auto loss = await_loss(*half);
  EXPECT_NE(loss.cause.find("connection reset"), std::string::npos) << loss.cause;
  EXPECT_EQ(loss.end, Transport::End::by_peer);
}

TEST(TcpLoss, bytes_that_are_no_frame_lose_the_peer_after_the_frames_before_them) {
  Half half;
  half.write(make_frame(50, 1));
  half.write(std::vector<std::byte>(64, std::byte{'x'}));
  EXPECT_TRUE(is_frame(await_frame(*half).bytes, 50, 1));
  const auto loss = await_loss(*half);
  EXPECT_NE(loss.cause.find("QCF1"), std::string::npos) << loss.cause;
  EXPECT_EQ(loss.end, Transport::End::faulty);
}

TEST(TcpLoss, a_peer_that_sends_no_frames_can_be_told_and_is_lost_again_if_it_ends) {
  for (const bool is_told : {true, false}) {
    Half half(tcp_pair);
    half.write(std::vector<std::byte>(64, std::byte{'x'}));
    EXPECT_EQ(await_loss(*half).end, Transport::End::faulty);
    half.write(std::vector<std::byte>(64, std::byte{'x'}));
    half->progress();
    EXPECT_FALSE(half->next_loss() || half->receive()) << "what else it sends is dropped";
    if (is_told) {
      ASSERT_TRUE(send_frame(*half, 1, 100, 5));
      half->disconnect(WorldRank(1));
      half->progress();
      std::vector<std::byte> told(100);
      ASSERT_TRUE(os::read_exactly(half.peer, told, wait_limit(), steady).ok());
      EXPECT_TRUE(is_frame(told, 100 - wire::kHeaderBytes, 5));
      for (const TimePoint limit = wait_limit(); !os::peer_closed(half.peer.get());) {
        ASSERT_LT(steady.now(), limit);
        half->progress();
      }
    } else {
      half.peer.reset();
      EXPECT_EQ(await_loss(*half).end, Transport::End::by_peer);
    }
    EXPECT_FALSE(half->reserve(WorldRank(1), 100, TrafficClass::control));
    EXPECT_FALSE(half->next_loss());
  }
}

TEST(TcpLoss, a_damaged_header_loses_the_peer_whichever_bit_flips) {
  for (std::size_t position = 0; position < wire::kHeaderBytes; ++position) {
    Half half;
    auto frame = make_frame(8, 1);
    frame[position] ^= std::byte{0x10};
    half.write(frame);
    EXPECT_EQ(await_loss(*half).peer, WorldRank(1)) << "byte " << position;
  }
}

TEST(TcpLoss, a_payload_over_the_limit_loses_the_peer) {
  Half half;
  std::vector<std::byte> bytes(wire::kHeaderBytes);
  wire::FrameHeader header;
  header.payload_bytes = wire::kPayloadLimit + 1;
  wire::encode_header(header, bytes.data());
  half.write(bytes);
  const auto loss = await_loss(*half);
  EXPECT_NE(loss.cause.find("over the limit"), std::string::npos) << loss.cause;
}

TEST(TcpLoss, frames_that_wait_for_a_lost_peer_do_not_count_as_unsent) {
  Half half(tcp_pair);
  while (send_frame(*half, 1, kMaxFrameBytes, 0)) continue;
  ASSERT_FALSE(half->flushed());
  half.peer.reset();
  EXPECT_EQ(await_loss(*half).peer, WorldRank(1));
  EXPECT_TRUE(half->flushed());
  EXPECT_FALSE(half->reserve(WorldRank(1), 100, TrafficClass::control));
}

TEST(TcpLoss, frames_of_a_peer_that_vanished_are_received_although_sending_fails) {
  Half half;
  half.write(make_frame(100, 4));
  half.peer.reset();
  ASSERT_TRUE(send_frame(*half, 1, 100, 0)) << "the failure shows in the loss";
  EXPECT_TRUE(is_frame(await_frame(*half).bytes, 100, 4));
  EXPECT_EQ(await_loss(*half).peer, WorldRank(1));
}

TEST(TcpLoss, a_reservation_outlives_the_loss_of_its_peer) {
  Half half;
  Reservation room = half->reserve(WorldRank(1), 100, TrafficClass::data);
  ASSERT_EQ(room.bytes().size(), 100u);
  half.peer.reset();
  EXPECT_EQ(await_loss(*half).peer, WorldRank(1));
  write_frame(room.bytes(), 0);
  half->commit(std::move(room), 100, {});
  EXPECT_FALSE(room) << "it goes back";
  EXPECT_TRUE(half->flushed());
}

// A DataLoader's worker inherits the endpoint; files that it opens may get the same descriptor numbers.
TEST(TcpLoss, a_forked_child_that_destroys_the_endpoint_touches_no_socket) {
  Half half;
  ASSERT_TRUE(send_frame(*half, 1, kMaxFrameBytes, 0) && send_frame(*half, 1, kMaxFrameBytes, 1));
  const pid_t child = ::fork();
  if (child == 0) {
    bool intact = true;
    std::vector<os::SocketPair> own;
    for (int i = 0; i < 4; ++i) own.push_back(unix_pair());
    half.destroy();
    std::byte scratch[16];
    for (const auto& each : own) {
      for (const os::Fd* fd : {&each.first, &each.second}) intact &= os::read_some(fd->get(), scratch).would_block;
    }
    ::_exit(intact ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::vector<std::byte> received;
  while (going_well() && received.size() < 2 * kMaxFrameBytes) {
    half->progress();
    std::vector<std::byte> part(kMaxFrameBytes);
    const auto got = os::read_some(half.peer.get(), part);
    ASSERT_FALSE(got.lost());
    received.insert(received.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(got.bytes));
  }
  for (const std::size_t number : {0, 1}) {
    EXPECT_TRUE(is_frame(ConstBytes(received).subspan(number * kMaxFrameBytes, kMaxFrameBytes), number));
  }
}

}  // namespace
}  // namespace qccl::tcp_test
