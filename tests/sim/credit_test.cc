// Flow control: only eager data leaves before its receiver has granted it, the data waiting at a
// receiver is bounded, and networks with hardly any room do not deadlock.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "engine/frames/frame_sender.h"
#include "engine/run/plan_operation.h"
#include "plan/plan.h"
#include "support/sim_call.h"
#include "wire/frame.h"

namespace qccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

engine::ResolvedCall all_reduce(std::uint64_t count, int world, const CallOptions& options = {}) {
  return make_call(Collective::all_reduce, count, DataType::float32, world, options);
}

// Watches all frames and records what each stream was granted and what it sent.
class FlowWatch {
 public:
  explicit FlowWatch(SimWorld& world) {
    world.network().set_tap([this](int from, int to, Bytes frame) {
      const auto header = wire::decode_header(frame.data());
      if (header.ok()) on_frame(from, to, header.value());
    });
  }
  std::uint64_t eager_bytes(int from, int to) { return eager_bytes_[{from, to}]; }
  std::uint64_t granted_frames() const { return granted_frames_; }
  const std::string& violation() const { return violation_; }

 private:
  // Sender, receiver, group, sequence, phase.
  using Stream = std::tuple<int, int, std::uint64_t, std::uint64_t, int>;

  void on_frame(int from, int to, const wire::FrameHeader& header) {
    const int phase = header.phase & ~engine::kEagerFlag;
    if (header.kind == wire::FrameKind::grant) {
      auto& granted = granted_[{to, from, header.group, header.sequence, phase}];
      granted = std::max<std::uint64_t>(granted, header.slice);
    }
    if (header.kind != wire::FrameKind::data) return;
    if ((header.phase & engine::kEagerFlag) != 0) {
      eager_bytes_[{from, to}] += header.payload_bytes;
      return;
    }
    ++granted_frames_;
    const Stream stream{from, to, header.group, header.sequence, phase};
    if (header.slice < granted_[stream]) return;
    violation_ = fmt::format("rank {} sent rank {} slice {} of phase {} with {} granted", from, to, header.slice, phase,
                             granted_[stream]);
  }

  std::map<Stream, std::uint64_t> granted_;
  std::map<std::pair<int, int>, std::uint64_t> eager_bytes_;
  std::uint64_t granted_frames_ = 0;
  std::string violation_;
};

TEST(Credit, no_large_data_leaves_before_the_receiver_has_called) {
  SimWorld world(2);
  FlowWatch watch(world);
  std::deque<SimCall> calls;
  for (int i = 0; i < 10; ++i) {
    calls.emplace_back(world, world_group(world), all_reduce(500000, 2));
    calls.back().post(0, seconds(60));
  }
  world.run_for(seconds(1));
  EXPECT_EQ(watch.granted_frames(), 0u);
  EXPECT_EQ(watch.eager_bytes(0, 1), 0u);
  for (SimCall& call : calls) call.post(1);
  ASSERT_TRUE(world.run(works_of(calls)));
  for (const SimCall& call : calls) EXPECT_EQ(call.verify(), "");
  EXPECT_EQ(watch.violation(), "");
  EXPECT_GT(watch.granted_frames(), 0u);
}

TEST(Credit, eager_data_to_a_rank_that_has_not_called_stays_within_the_budget) {
  SimWorld world(3);
  FlowWatch watch(world);
  std::deque<SimCall> calls;
  for (int i = 0; i < 500; ++i) {
    calls.emplace_back(world, world_group(world), all_reduce(3000, 3, {.algorithm = Algorithm::one_shot}));
    calls.back().post(0, seconds(60));
  }
  world.run_for(seconds(1));
  for (const int to : {1, 2}) {
    EXPECT_LE(watch.eager_bytes(0, to), engine::kEagerBudget);
    EXPECT_GT(watch.eager_bytes(0, to), engine::kEagerBudget - 64 * 1024) << "the budget is there to be used";
  }
  for (SimCall& call : calls) {
    call.post(1);
    call.post(2);
  }
  ASSERT_TRUE(world.run(works_of(calls)));
  for (const SimCall& call : calls) ASSERT_EQ(call.verify(), "");
  EXPECT_EQ(watch.violation(), "");
}

TEST(Credit, frames_that_wait_at_a_receiver_are_bounded_by_the_window_of_each_stream) {
  constexpr int kWorld = 4;
  SimWorld world(kWorld, {.seed = 3, .link = {.jitter = milliseconds(5)}, .slice_bytes = 4096});
  FlowWatch watch(world);
  SimCall call(world, world_group(world), all_reduce(400000, kWorld));  // 98 slices per chunk
  call.post_all();
  std::size_t most = 0;
  ASSERT_TRUE(world.run_until([&] {
    for (int rank = 0; rank < kWorld; ++rank) most = std::max(most, world.network().endpoint(rank).held().frames);
    for (int rank = 0; rank < kWorld; ++rank) {
      if (!call.done(rank)) return false;
    }
    return true;
  }));
  EXPECT_EQ(call.verify(), "");
  EXPECT_EQ(watch.violation(), "");
  // Two streams from each peer: its input for this rank's chunk, and its result.
  EXPECT_LE(most, engine::kWindow * 2 * (kWorld - 1));
  EXPECT_GT(most, 0u);
}

class FewSlots : public ::testing::TestWithParam<std::size_t> {};

// Only one or two frames may be in flight between two ranks; every collective still ends.
TEST_P(FewSlots, do_not_deadlock_any_collective) {
  for (const int size : {2, 3, 5}) {
    SimWorld world(
        size,
        {.seed = 8, .link = {.latency = std::chrono::microseconds(10), .slots = GetParam()}, .slice_bytes = 4096});
    std::deque<SimCall> calls;
    std::uint64_t seed = 0;
    for (const auto collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
          Collective::reduce, Collective::gather, Collective::scatter, Collective::all_to_all, Collective::barrier}) {
      for (const Algorithm algorithm : plan::algorithms_of(collective)) {
        for (const std::uint64_t count : {100, 30000}) {
          const auto call = make_call(collective, collective == Collective::barrier ? 0 : count, DataType::float32,
                                      size, {.algorithm = algorithm});
          calls.emplace_back(world, world_group(world), call, SimCall::Data{.seed = ++seed});
        }
      }
    }
    calls.emplace_back(world, world_group(world), all_reduce(30000, size, {.compression = minmax({.bits = 4})}));
    for (SimCall& call : calls) call.post_all();
    ASSERT_TRUE(world.run(works_of(calls), seconds(30))) << size << " ranks";
    for (const SimCall& call : calls) ASSERT_EQ(call.verify(), "");
    EXPECT_EQ(world.held_frames(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Simulated, FewSlots, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return fmt::format("slots_{}", info.param); });

// The reports of consumed bytes may lag, but an exhausted budget is refilled.
TEST(Credit, a_budget_used_up_comes_back) {
  SimWorld world(2);
  for (int round = 0; round < 200; ++round) {
    SimCall call(world, world_group(world), all_reduce(16000, 2, {.algorithm = Algorithm::one_shot}));
    call.post_all();
    ASSERT_TRUE(world.run(call.works()));
    ASSERT_EQ(call.verify(), "");
  }
  world.settle();
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(world.engine(rank).frame_sender().eager().has_room(WorldRank(1 - rank), engine::kEagerBudget / 2))
        << "after 12 MiB";
  }
}

}  // namespace
}  // namespace qccl::testing
