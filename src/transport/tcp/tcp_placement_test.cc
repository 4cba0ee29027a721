// Payloads that are written to their place as they arrive.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "transport/tcp/tcp_support_test.h"

namespace qccl::tcp_test {
namespace {

constexpr std::size_t kLarge = 200'000;
constexpr std::byte kUntouched{0xEE};

// Places the payloads of the sequence numbers that a test lists.
class Places final : public PayloadPlacement {
 public:
  explicit Places(std::function<bool(std::uint64_t)> wants) : wants_(std::move(wants)) {}

  std::byte* place(WorldRank peer, ConstBytes header) override {
    EXPECT_EQ(peer, WorldRank(0));
    const auto decoded = wire::decode_header(header.data());
    EXPECT_TRUE(decoded.ok());
    const std::uint64_t sequence = decoded.value().sequence;
    if (!wants_(sequence)) return nullptr;
    const auto [place, is_new] = places.try_emplace(sequence, decoded.value().payload_bytes, kUntouched);
    EXPECT_TRUE(is_new) << "asked twice";
    return place->second.data();
  }

  std::map<std::uint64_t, std::vector<std::byte>> places;

 private:
  std::function<bool(std::uint64_t)> wants_;
};

bool is_frame_in_parts(const ReceivedFrame& frame, std::size_t payload_bytes, std::uint64_t sequence) {
  std::vector<std::byte> whole(frame.bytes.begin(), frame.bytes.begin() + kFrameHeaderBytes);
  whole.insert(whole.end(), frame.payload().begin(), frame.payload().end());
  return is_frame(whole, payload_bytes, sequence);
}

TEST(TcpPlacement, large_payloads_lie_where_the_receiver_wants_them_and_all_others_in_their_frames) {
  auto pair = tcp_pair();
  Side a(1, std::move(pair.first)), b(0, std::move(pair.second));
  Places places([](std::uint64_t sequence) { return sequence % 3 != 0; });
  b->set_placement(&places);
  const auto sizes = random_sizes(400, 11);
  std::size_t placed = 0;
  for (std::size_t sent = 0, received = 0; received < sizes.size();) {
    if (sent < sizes.size() && a.send(sizes[sent], sent)) ++sent;
    a->progress();
    b->progress();
    while (const auto frame = b->receive()) {
      ASSERT_TRUE(is_frame_in_parts(*frame, sizes[received], received)) << "frame " << received;
      if (frame->is_placed()) {
        EXPECT_EQ(frame->payload().data(), places.places.at(received).data());
        ++placed;
      }
      b->release(*frame);
      ++received;
    }
  }
  EXPECT_EQ(placed, places.places.size());
  EXPECT_GT(placed, 30u);
}

// A connection whose other end is a raw socket of the test.
struct Half {
  Half() {
    auto pair = unix_pair();
    writer = std::move(pair.first);
    side.emplace(0, std::move(pair.second));
    (*side)->set_placement(&places);
  }
  void write(ConstBytes bytes) {
    write_all(writer, bytes);
    (*side)->progress();
  }

  Places places{[](std::uint64_t) { return true; }};
  os::Fd writer;
  std::optional<Side> side;
};

TEST(TcpPlacement, a_frame_that_is_withdrawn_half_way_comes_whole_and_writes_there_no_more) {
  Half half;
  const auto frame = make_frame(kLarge, 5);
  half.write(ConstBytes(frame).first(kLarge / 2));
  ASSERT_EQ(half.places.places.count(5), 1u);
  auto& place = half.places.places.at(5);
  EXPECT_EQ(place.front(), frame[kFrameHeaderBytes]) << "the first half should have been written";
  (*half.side)->withdraw();
  std::fill(place.begin(), place.end(), kUntouched);
  half.write(ConstBytes(frame).subspan(kLarge / 2));
  const auto received = half.side->next_frame();
  ASSERT_TRUE(received.has_value());
  EXPECT_FALSE(received->is_placed());
  EXPECT_TRUE(is_frame(received->bytes, kLarge, 5));
  EXPECT_EQ(place, std::vector<std::byte>(kLarge, kUntouched));
  (*half.side)->release(*received);
}

TEST(TcpPlacement, a_frame_that_is_withdrawn_before_it_is_handed_out_does_not_point_there) {
  Half half;
  const auto first = make_frame(kLarge, 1), second = make_frame(100, 2);
  half.write(ConstBytes(first).first(kLarge));
  half.write(ConstBytes(first).subspan(kLarge));
  half.write(second);
  ASSERT_EQ(half.places.places.size(), 1u);
  EXPECT_EQ(half.places.places.at(1).back(), first.back());
  (*half.side)->withdraw();
  half.places.places.clear();
  const auto received = half.side->next_frame();
  ASSERT_TRUE(received.has_value());
  EXPECT_FALSE(received->is_placed());
  EXPECT_TRUE(is_frame(received->bytes, kLarge, 1));
  (*half.side)->release(*received);
  const auto after = half.side->next_frame();
  ASSERT_TRUE(after.has_value());
  EXPECT_TRUE(is_frame(after->bytes, 100, 2)) << "frames keep their order";
  (*half.side)->release(*after);
}

TEST(TcpPlacement, a_connection_that_ends_half_way_is_lost_as_ever) {
  Half half;
  const auto frame = make_frame(kLarge, 1);
  half.write(ConstBytes(frame).first(kLarge / 2));
  half.writer.reset();
  const auto loss = half.side->next_loss();
  ASSERT_TRUE(loss.has_value());
  EXPECT_NE(loss->cause.find("in the middle of a frame"), std::string::npos) << loss->cause;
}

}  // namespace
}  // namespace qccl::tcp_test
