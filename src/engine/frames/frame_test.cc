#include "engine/frames/frame.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "engine/frames/stub_transport_test.h"

namespace qccl::engine {
namespace {

const WorldRank kSource(1);

// Counts the frames that come back.
class CountingTransport final : public testing::StubTransport {
 public:
  CountingTransport() : StubTransport(true) {}
  void release(const ReceivedFrame&) override { ++released; }

  int released = 0;
};

class Frames : public ::testing::Test {
 protected:
  Frame received(std::uint16_t phase = 0) {
    const wire::FrameHeader header{
        .kind = wire::FrameKind::data, .phase = phase, .payload_bytes = static_cast<std::uint32_t>(kPayload)};
    return {sender_, header, {kSource, bytes_}};
  }

  static constexpr std::size_t kPayload = kEagerBudget / 2;
  CountingTransport transport_;
  FrameSender sender_{transport_, 2, false};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(wire::kHeaderBytes + kPayload);
};

TEST_F(Frames, go_back_once_when_their_last_holder_ends) {
  {
    Frame first = received();
    Frame second = std::move(first);
    EXPECT_FALSE(first);
    ASSERT_TRUE(second);
    EXPECT_EQ(second.peer(), kSource);
    EXPECT_EQ(second.payload().size(), kPayload);
    EXPECT_EQ(transport_.released, 0);
  }
  EXPECT_EQ(transport_.released, 1);
}

TEST_F(Frames, go_back_when_their_holder_takes_another) {
  Frame held = received();
  held = received();
  EXPECT_EQ(transport_.released, 1);
  Frame& same = held;
  held = std::move(same);
  EXPECT_EQ(transport_.released, 1) << "moved to itself";
  held = {};
  EXPECT_EQ(transport_.released, 2);
  held = {};
  EXPECT_EQ(transport_.released, 2) << "there is none";
}

TEST_F(Frames, leave_their_senders_budget_when_they_go_back_if_they_were_sent_eagerly) {
  static_cast<void>(received());
  EXPECT_FALSE(sender_.eager().owes_report(kSource));
  Frame eager = received(kEagerFlag);
  EXPECT_FALSE(sender_.eager().owes_report(kSource)) << "still held";
  eager = {};
  EXPECT_TRUE(sender_.eager().owes_report(kSource));
}

TEST_F(Frames, that_something_may_still_read_never_go_back) {
  received().forget();
  EXPECT_EQ(transport_.released, 0);
}

}  // namespace
}  // namespace qccl::engine
