#include "engine/frames/frame_sender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/frames/stub_transport_test.h"

namespace qccl::engine {
namespace {

constexpr std::uint64_t kWindow = std::uint64_t{48} << 20;
constexpr std::size_t kSlice = 128 * 1024;
const WorldRank kPeer(1);

TEST(EagerBudget, is_each_peers_share_of_the_window) {
  EXPECT_EQ(eager_budget(kWindow, 4), kWindow / 3);
  EXPECT_EQ(eager_budget(kWindow, 2), kWindow);
  EXPECT_EQ(eager_budget(kWindow, 1), kWindow) << "without peers";
}

TEST(EagerBudget, is_the_one_of_near_ranks_at_least_and_one_gibibyte_at_most) {
  EXPECT_EQ(eager_budget(kWindow, 1000), kEagerBudget);
  EXPECT_EQ(eager_budget(0, 2), kEagerBudget);
  EXPECT_EQ(eager_budget(std::uint64_t{1} << 40, 2), std::uint32_t{1} << 30);
}

TEST(EagerBudgets, begin_with_nothing_sent_and_nothing_to_report) {
  EagerBudgets budgets(2);
  EXPECT_TRUE(budgets.has_room(kPeer, kEagerBudget - wire::kHeaderBytes));
  EXPECT_FALSE(budgets.has_room(kPeer, kEagerBudget - wire::kHeaderBytes + 1));
  EXPECT_FALSE(budgets.owes_report(kPeer));
  EXPECT_FALSE(budgets.take_due());
  EXPECT_EQ(budgets.report(kPeer), 0u);
}

TEST(EagerBudgets, have_room_again_for_what_the_peer_reports_as_consumed) {
  EagerBudgets budgets(2);
  const std::uint32_t cost = kSlice + wire::kHeaderBytes;
  budgets.note_sent(kPeer, kSlice);
  EXPECT_FALSE(budgets.has_room(kPeer, kEagerBudget - cost));
  budgets.note_returned(kPeer, cost + 1);
  EXPECT_FALSE(budgets.has_room(kPeer, kEagerBudget - cost)) << "more than was sent";
  budgets.note_returned(kPeer, cost);
  EXPECT_TRUE(budgets.has_room(kPeer, kEagerBudget - cost));
}

TEST(EagerBudgets, owe_a_report_of_more_than_a_quarter) {
  EagerBudgets budgets(2);
  budgets.note_consumed(kPeer, kEagerBudget / 4 - wire::kHeaderBytes);
  EXPECT_FALSE(budgets.owes_report(kPeer));
  EXPECT_FALSE(budgets.take_due());
  budgets.note_consumed(kPeer, 0);
  EXPECT_TRUE(budgets.owes_report(kPeer));
  EXPECT_TRUE(budgets.take_due());
  EXPECT_FALSE(budgets.take_due());
  EXPECT_EQ(budgets.report(kPeer), kEagerBudget / 4 + wire::kHeaderBytes);
  EXPECT_FALSE(budgets.owes_report(kPeer));
}

// Keeps the last frame.
class KeepingTransport final : public testing::StubTransport, private Reservation::Owner {
 public:
  using StubTransport::StubTransport;
  Reservation reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) override {
    frame_.assign(max_bytes, {});
    return {*this, peer, traffic, frame_};
  }
  void commit(Reservation&& room, std::size_t bytes, ConstBytes payload) override {
    frame_.resize(room.append(bytes, payload));
    outside_bytes = payload.size();
    room.forget();
  }
  wire::FrameHeader header() const { return wire::decode_header(frame_.data()).take_or_throw(); }
  ConstBytes payload() const { return ConstBytes(frame_).subspan(wire::kHeaderBytes); }

  std::size_t outside_bytes = 0;  // of the last frame's payload

 private:
  void give_back(const Reservation&) override { frame_.clear(); }

  std::vector<std::byte> frame_;
};

TEST(FrameSender, checks_payloads_between_hosts_unless_told_otherwise) {
  const std::vector<std::byte> payload(100, std::byte{7});
  for (const bool is_near : {false, true}) {
    for (const bool checks : {false, true}) {
      KeepingTransport transport(is_near);
      FrameSender sender(transport, 2, checks);
      ASSERT_TRUE(sender.send_control(kPeer, {.kind = wire::FrameKind::poison}, payload));
      const std::uint64_t expected = checks && !is_near ? wire::payload_checksum(payload) : 0;
      EXPECT_EQ(transport.header().payload_checksum, expected) << is_near << checks;
      ASSERT_TRUE(sender.send_control(kPeer, {.kind = wire::FrameKind::heartbeat}, {}));
      EXPECT_EQ(transport.header().payload_checksum, 0u) << "without a payload";
    }
  }
}

TEST(FrameSender, sends_a_payload_from_its_room_or_from_where_it_lies) {
  const std::vector<std::byte> payload(100, std::byte{7});
  KeepingTransport transport(true);
  FrameSender sender(transport, 2, false);
  for (const bool is_in_place : {true, false}) {
    Reservation room = sender.begin(kPeer, 200, TrafficClass::data);
    ASSERT_EQ(payload_room(room).size(), 200u);
    if (is_in_place) std::ranges::copy(payload, payload_room(room).begin());
    const ConstBytes sent = is_in_place ? payload_room(room).first(payload.size()) : ConstBytes(payload);
    sender.finish(std::move(room), {.kind = wire::FrameKind::data}, sent);
    EXPECT_EQ(transport.header().payload_bytes, payload.size());
    EXPECT_TRUE(std::ranges::equal(transport.payload(), payload)) << is_in_place;
    EXPECT_EQ(transport.outside_bytes, is_in_place ? 0 : payload.size());
  }
}

}  // namespace
}  // namespace qccl::engine
