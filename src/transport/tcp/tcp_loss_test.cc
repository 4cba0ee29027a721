// How a peer is lost, and which frames are still delivered then.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "os/net/socket.h"
#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp/tcp_support_test.h"

namespace qccl::tcp_test {
namespace {

TEST(Tcp, frames_before_end_of_file_come_before_the_loss) {
  auto pair = tcp_pair();
  Side side(0, std::move(pair.second));
  for (const std::uint64_t sequence : {0, 1}) write_all(pair.first, make_frame(100, sequence));
  pair.first.reset();
  for (int step = 0; step < 100; ++step) side->progress();
  for (const std::uint64_t sequence : {0, 1}) {
    EXPECT_FALSE(side->next_loss().has_value());
    const auto frame = side.next_frame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_TRUE(is_frame(frame->bytes, 100, sequence));
  }
  const auto loss = side.next_loss();
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->peer, WorldRank(0));
  EXPECT_EQ(loss->cause, "closed the connection (end of file)");
  EXPECT_FALSE(side->next_loss().has_value()) << "reported twice";
  EXPECT_TRUE(side->reserve(WorldRank(0), 100, TrafficClass::data).empty());
}

TEST(Tcp, a_peer_that_closes_mid_frame_is_lost_with_the_bytes_got_and_missing) {
  for (const std::size_t cut : {std::size_t{10}, std::size_t{64}, std::size_t{500}}) {
    auto pair = unix_pair();
    Side side(0, std::move(pair.second));
    write_all(pair.first, ConstBytes(make_frame(936, 0)).first(cut));
    pair.first.reset();
    const auto loss = side.next_loss();
    ASSERT_TRUE(loss.has_value());
    const std::string expected = std::to_string(cut) + " of " + (cut < 64 ? "64" : "1000") + " bytes";
    EXPECT_NE(loss->cause.find(expected), std::string::npos) << loss->cause;
    EXPECT_FALSE(side->receive().has_value());
  }
}

TEST(Tcp, a_reset_connection_says_so) {
  auto pair = tcp_pair();
  Side side(0, std::move(pair.second));
  const linger reset_on_close{1, 0};
  ASSERT_EQ(::setsockopt(pair.first.get(), SOL_SOCKET, SO_LINGER, &reset_on_close, sizeof(reset_on_close)), 0);
  pair.first.reset();
  const auto loss = side.next_loss();
  ASSERT_TRUE(loss.has_value());
  EXPECT_NE(loss->cause.find("connection reset"), std::string::npos) << loss->cause;
}

TEST(Tcp, bytes_that_are_no_frame_lose_the_peer_after_the_frames_before_them) {
  auto pair = unix_pair();
  Side side(0, std::move(pair.second));
  write_all(pair.first, make_frame(50, 1));
  write_all(pair.first, std::vector<std::byte>(64, std::byte{'x'}));
  const auto frame = side.next_frame();
  ASSERT_TRUE(frame.has_value());
  EXPECT_TRUE(is_frame(frame->bytes, 50, 1));
  const auto loss = side.next_loss();
  ASSERT_TRUE(loss.has_value());
  EXPECT_NE(loss->cause.find("QCF1"), std::string::npos) << loss->cause;
  EXPECT_TRUE(os::peer_closed(pair.first.get()));
}

TEST(Tcp, what_waited_for_a_lost_peer_no_longer_counts_as_unsent) {
  auto pair = unix_pair();
  Side side(1, std::move(pair.first));
  while (side.send(kMaxPayloadBytes, 0)) continue;
  ASSERT_FALSE(side->flushed());
  write_all(pair.second, std::vector<std::byte>(64, std::byte{'x'}));
  ASSERT_TRUE(side.next_loss().has_value());
  EXPECT_TRUE(side->flushed());
}

TEST(Tcp, a_damaged_header_loses_the_peer_whatever_bit_flips) {
  for (std::size_t position = 0; position < wire::kHeaderBytes; ++position) {
    auto pair = unix_pair();
    Side side(0, std::move(pair.second));
    auto frame = make_frame(8, 1);
    frame[position] ^= std::byte{0x10};
    write_all(pair.first, frame);
    EXPECT_TRUE(side.next_loss().has_value()) << "byte " << position;
    EXPECT_FALSE(side->receive().has_value());
  }
}

TEST(Tcp, a_payload_over_the_limit_loses_the_peer) {
  auto pair = unix_pair();
  Side side(0, std::move(pair.second));
  std::vector<std::byte> bytes(wire::kHeaderBytes);
  wire::FrameHeader header;
  header.payload_bytes = wire::kPayloadLimit + 1;
  wire::encode_header(header, bytes.data());
  write_all(pair.first, bytes);
  const auto loss = side.next_loss();
  ASSERT_TRUE(loss.has_value());
  EXPECT_NE(loss->cause.find("over the limit"), std::string::npos) << loss->cause;
}

// The peer keeps sending: closing the connection at once would reset it and lose the last frame.
TEST(Tcp, a_peer_that_is_disconnected_gets_all_that_was_sent_then_end_of_file) {
  auto pair = tcp_pair();
  Side own(1, std::move(pair.first)), peer(0, std::move(pair.second));
  ASSERT_TRUE(peer.send(100, 7));
  while (own.send(kMaxPayloadBytes, 0)) continue;
  ASSERT_TRUE(own.send(100, 1, TrafficClass::control));
  own->disconnect(WorldRank(1));
  EXPECT_TRUE(own->reserve(WorldRank(1), 100, TrafficClass::control).empty());
  std::uint64_t last = 0;
  std::optional<Transport::PeerLoss> loss;
  for (int step = 0; step < kStepLimit && !loss; ++step) {
    own->progress();
    EXPECT_FALSE(own->receive().has_value());
    peer->progress();
    peer.send(100, 7);
    while (auto frame = peer->receive()) {
      last = wire::decode_header(frame->bytes.data()).take_or_throw().sequence;
      peer->release(*frame);
    }
    loss = peer->next_loss();
  }
  EXPECT_EQ(last, 1u) << "the frame that was sent last";
  ASSERT_TRUE(loss.has_value());
  EXPECT_FALSE(own->next_loss().has_value()) << "this rank ended it itself";
  EXPECT_TRUE(own->flushed());
}

TEST(Tcp, a_lost_peer_that_is_disconnected_is_not_reported) {
  auto pair = unix_pair();
  Side side(0, std::move(pair.second));
  write_all(pair.first, make_frame(50, 1));
  pair.first.reset();
  ASSERT_TRUE(side.next_frame().has_value());
  for (int step = 0; step < 100; ++step) side->progress();
  side->disconnect(WorldRank(0));
  EXPECT_FALSE(side->next_loss().has_value());
}

TEST(Tcp, sending_to_a_peer_that_is_gone_ends_in_its_loss_and_an_empty_queue) {
  auto pair = tcp_pair();
  Side side(1, std::move(pair.first));
  while (side.send(kMaxPayloadBytes, 0)) continue;
  EXPECT_FALSE(side->flushed());
  pair.second.reset();
  ASSERT_TRUE(side.next_loss().has_value());
  EXPECT_TRUE(side->flushed());
  EXPECT_TRUE(side->reserve(WorldRank(1), 100, TrafficClass::control).empty());
}

TEST(Tcp, what_a_peer_sent_before_it_vanished_is_received_although_sending_fails) {
  auto pair = unix_pair();
  Side side(1, std::move(pair.first));
  write_all(pair.second, make_frame(100, 4));
  pair.second.reset();
  ASSERT_TRUE(side.send(100, 0)) << "the failure shows in the loss";
  const auto frame = side.next_frame();
  ASSERT_TRUE(frame.has_value());
  EXPECT_TRUE(is_frame(frame->bytes, 100, 4));
  EXPECT_TRUE(side.next_loss().has_value());
}

TEST(Tcp, a_reservation_outlives_the_loss_of_its_peer) {
  auto pair = unix_pair();
  Side side(1, std::move(pair.first));
  const Bytes room = side->reserve(WorldRank(1), 100, TrafficClass::data);
  ASSERT_EQ(room.size(), 100u);
  pair.second.reset();
  ASSERT_TRUE(side.next_loss().has_value());
  write_frame(room, 0);
  side->commit(100);
  EXPECT_TRUE(side->flushed());
}

// A DataLoader's worker inherits the endpoint; files that it opens may get the same descriptor numbers.
TEST(Tcp, a_forked_child_that_destroys_the_endpoint_touches_no_socket) {
  auto pair = unix_pair();
  Side side(1, std::move(pair.first));
  ASSERT_TRUE(side.send(kMaxPayloadBytes, 0) && side.send(kMaxPayloadBytes, 1));
  const pid_t child = ::fork();
  if (child == 0) {
    bool intact = true;
    std::vector<os::SocketPair> own;
    for (int i = 0; i < 4; ++i) own.push_back(os::socket_pair().take_or_throw());
    side.endpoint.reset();
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
  Side other(0, std::move(pair.second));
  for (const std::uint64_t sequence : {0, 1}) {
    std::optional<ReceivedFrame> frame;
    for (int step = 0; step < kStepLimit && !frame; ++step) {
      side->progress();
      other->progress();
      frame = other->receive();
    }
    ASSERT_TRUE(frame.has_value());
    EXPECT_TRUE(is_frame(frame->bytes, kMaxPayloadBytes, sequence));
  }
}

}  // namespace
}  // namespace qccl::tcp_test
