// Operations that get a frame they do not expect: the error names its sender by its rank in the world.
#include <gtest/gtest.h>

#include "base/options.h"
#include "engine/collective/cell_operation.h"
#include "engine/collective/plan_operation.h"
#include "engine/compute/host_compute.h"
#include "engine/message/mailbox.h"

namespace qccl::engine {
namespace {

class NoBoard final : public ExchangeCells {
 public:
  bool open(std::uint64_t) override { return false; }
  void close(std::uint64_t) override {}
  void publish(std::uint64_t, std::uint64_t, std::uint64_t, ConstBytes) override {}
  void ring(std::uint64_t) override {}
  std::optional<ExchangeCell> read(std::uint64_t, WorldRank, std::uint64_t) override { return std::nullopt; }
};

// Sends and brings nothing.
class NoTransport final : public Transport {
 public:
  Bytes reserve(WorldRank, std::size_t, TrafficClass) override { return {}; }
  void commit(std::size_t) override {}
  std::optional<ReceivedFrame> receive() override { return std::nullopt; }
  void release(const ReceivedFrame&) override {}
  bool progress() override { return false; }
  std::optional<PeerLoss> next_loss() override { return std::nullopt; }
  void disconnect(WorldRank) override {}
  void sleep(TimePoint, const Clock&) override {}
  void wake() override {}
  bool is_local(WorldRank) const override { return true; }
  ExchangeCells* board() override { return &board_; }
  const char* kind(WorldRank) const override { return "none"; }
  bool flushed() const override { return true; }
  void close() override {}

 private:
  NoBoard board_;
};

class UnexpectedFrame : public ::testing::Test {
 protected:
  // Member 1 is rank 5 of the world.
  UnexpectedFrame() {
    group_.name = "pair";
    group_.ranks = {2, 5};
    group_.rank = GroupRank(0);
    group_.members_of = {{}, {}, GroupRank(0), {}, {}, GroupRank(1)};
    group_.hosts = {0, 0};
  }
  static CallArguments arguments() {
    ResolvedCall call{.collective = Collective::all_reduce, .count = 8, .type = DataType::float32, .compression = {}};
    call.slice_bytes = kDefaultSliceBytes;
    CallArguments arguments;
    arguments.plan = std::make_shared<const ExecutablePlan>(call, 2, GroupRank(0), nullptr);
    return arguments;
  }
  static void expect_rank_5(Operation& operation) {
    for (const auto kind : {wire::FrameKind::data, wire::FrameKind::grant, wire::FrameKind::request}) {
      const Status status = operation.on_frame(GroupRank(1), {.kind = kind, .phase = 7, .chunk = 9}, {});
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().kind, ErrorKind::corrupt_data);
      EXPECT_TRUE(status.error().message.starts_with("rank 5 ")) << status.error().message;
    }
  }

  Group group_;
  NoTransport transport_;
  FrameSender frame_sender_{transport_, 6, true};
  ScratchPool pool_;
};

TEST_F(UnexpectedFrame, of_a_plan_names_the_senders_rank_in_the_world) {
  CallArguments call = arguments();
  auto compute = std::make_unique<HostCompute>(ComputeContext{call.plan.get(), 2, GroupRank(0), &pool_, 0});
  PlanOperation operation(group_, frame_sender_, *call.plan, std::move(compute));
  operation.begin(1, std::move(call), {});
  expect_rank_5(operation);
}

TEST_F(UnexpectedFrame, of_a_board_operation_names_the_senders_rank_in_the_world) {
  CellOperation operation(group_, frame_sender_, pool_);
  operation.begin(1, arguments(), {});
  expect_rank_5(operation);
}

}  // namespace
}  // namespace qccl::engine
