// How a peer is lost, and which frames are still delivered then.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "transport/tcp/tcp_support_test.h"

namespace qccl::tcp_test {
namespace {

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
}

TEST(TcpLoss, bytes_that_are_no_frame_lose_the_peer_after_the_frames_before_them) {
  Half half;
  half.write(make_frame(50, 1));
  half.write(std::vector<std::byte>(64, std::byte{'x'}));
  EXPECT_TRUE(is_frame(await_frame(*half).bytes, 50, 1));
  const auto loss = await_loss(*half);
  EXPECT_NE(loss.cause.find("QCF1"), std::string::npos) << loss.cause;
  EXPECT_TRUE(os::peer_closed(half.peer.get()));
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

// Whether the peer sends garbage or closes.
TEST(TcpLoss, frames_that_wait_for_a_lost_peer_do_not_count_as_unsent) {
  for (const bool closes : {false, true}) {
    Half half(closes ? tcp_pair : unix_pair);
    while (send_frame(*half, 1, kMaxFrameBytes, 0)) continue;
    ASSERT_FALSE(half->flushed());
    closes ? half.peer.reset() : half.write(std::vector<std::byte>(64, std::byte{'x'}));
    EXPECT_EQ(await_loss(*half).peer, WorldRank(1));
    EXPECT_TRUE(half->flushed());
    EXPECT_TRUE(half->reserve(WorldRank(1), 100, TrafficClass::control).empty());
  }
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
  const Bytes room = half->reserve(WorldRank(1), 100, TrafficClass::data);
  ASSERT_EQ(room.size(), 100u);
  half.peer.reset();
  EXPECT_EQ(await_loss(*half).peer, WorldRank(1));
  write_frame(room, 0);
  half->commit(100);
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
