// Payloads that are written to their destination as they arrive.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <vector>

#include "transport/tcp/tcp_support_test.h"

namespace qccl::tcp_test {
namespace {

constexpr std::size_t kLarge = 200'000;
constexpr std::byte kUntouched{0xEE};

// Has destinations for the payloads of the numbers that a test lists.
class Destinations final : public PayloadPlacement {
 public:
  explicit Destinations(std::function<bool(std::uint64_t)> wants) : wants_(std::move(wants)) {}

  std::byte* find_destination(WorldRank peer, ConstBytes header) override {
    EXPECT_EQ(peer, WorldRank(1));
    const auto decoded = wire::decode_header(header.data()).take_or_throw();
    if (!wants_(decoded.sequence)) return nullptr;
    const auto [destination, is_new] = of.try_emplace(decoded.sequence, decoded.payload_bytes, kUntouched);
    EXPECT_TRUE(is_new) << "asked twice";
    return destination->second.data();
  }

  std::map<std::uint64_t, std::vector<std::byte>> of;

 private:
  std::function<bool(std::uint64_t)> wants_;
};

bool is_frame_in_parts(const ReceivedFrame& frame, std::size_t payload_bytes, std::uint64_t number) {
  std::vector<std::byte> whole(frame.bytes.begin(), frame.bytes.begin() + kFrameHeaderBytes);
  whole.insert(whole.end(), frame.payload().begin(), frame.payload().end());
  return is_frame(whole, payload_bytes, number);
}

TEST(TcpPlacement, large_payloads_lie_where_the_receiver_wants_them_and_all_others_in_their_frames) {
  TcpMesh mesh(2, tcp_pair);
  Destinations destinations([](std::uint64_t number) { return number % 3 != 0; });
  mesh[0].set_placement(&destinations);
  std::mt19937 random(11);
  std::vector<std::size_t> sizes(400, kMaxPayloadBytes);
  for (auto& size : sizes) size = random() % (1u << (random() % 19));
  std::size_t placed = 0;
  for (std::size_t sent = 0, received = 0; received < sizes.size();) {
    if (sent < sizes.size() && send_frame(mesh[1], 0, wire::kHeaderBytes + sizes[sent], sent)) ++sent;
    mesh[1].progress();
    mesh[0].progress();
    while (const auto frame = mesh[0].receive()) {
      ASSERT_TRUE(is_frame_in_parts(*frame, sizes[received], received)) << "frame " << received;
      if (frame->is_placed()) {
        EXPECT_EQ(frame->payload().data(), destinations.of.at(received).data());
        ++placed;
      }
      mesh[0].release(*frame);
      ++received;
    }
  }
  EXPECT_EQ(placed, destinations.of.size());
  EXPECT_GT(placed, 30u);
}

class WithdrawnPlacement : public ::testing::Test {
 protected:
  WithdrawnPlacement() { half_->set_placement(&destinations_); }
  void write(ConstBytes bytes) {
    half_.write(bytes);
    half_->progress();
  }
  void expect_whole(std::size_t payload_bytes, std::uint64_t number) {
    const ReceivedFrame frame = await_frame(*half_);
    EXPECT_FALSE(frame.is_placed());
    EXPECT_TRUE(is_frame(frame.bytes, payload_bytes, number));
    half_->release(frame);
  }

  Destinations destinations_{[](std::uint64_t) { return true; }};
  Half half_;
};

TEST_F(WithdrawnPlacement, a_frame_half_received_comes_whole_and_writes_there_no_more) {
  const auto frame = make_frame(kLarge, 5);
  write(ConstBytes(frame).first(kLarge / 2));
  ASSERT_EQ(destinations_.of.count(5), 1u);
  auto& destination = destinations_.of.at(5);
  EXPECT_EQ(destination.front(), frame[kFrameHeaderBytes]) << "the first half should have been written";
  half_->withdraw();
  std::ranges::fill(destination, kUntouched);
  write(ConstBytes(frame).subspan(kLarge / 2));
  expect_whole(kLarge, 5);
  EXPECT_EQ(destination, std::vector<std::byte>(kLarge, kUntouched));
}

TEST_F(WithdrawnPlacement, a_frame_not_yet_handed_out_does_not_point_there) {
  const auto first = make_frame(kLarge, 1);
  write(ConstBytes(first).first(kLarge));
  write(ConstBytes(first).subspan(kLarge));
  write(make_frame(100, 2));
  ASSERT_EQ(destinations_.of.size(), 1u);
  EXPECT_EQ(destinations_.of.at(1).back(), first.back());
  half_->withdraw();
  destinations_.of.clear();
  expect_whole(kLarge, 1);
  expect_whole(100, 2);
}

TEST_F(WithdrawnPlacement, a_connection_that_ends_half_way_is_lost_as_ever) {
  const auto frame = make_frame(kLarge, 1);
  write(ConstBytes(frame).first(kLarge / 2));
  half_.peer.reset();
  const auto loss = await_loss(*half_);
  EXPECT_NE(loss.cause.find("in the middle of a frame"), std::string::npos) << loss.cause;
}

}  // namespace
}  // namespace qccl::tcp_test
