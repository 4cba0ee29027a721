// Slow and long paths: who counts as silent there, and what a call says that had too little time.
#include <gtest/gtest.h>

#include "support/sim_call.h"
#include "wire/frame.h"

namespace qccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

engine::ResolvedCall all_reduce(std::uint64_t count, int world) {
  return make_call(Collective::all_reduce, count, DataType::float32, world);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// At first nothing has come from afar, and after a loss packets are sent again.
TEST(DistantRank, counts_as_silent_some_round_trips_later) {
  SimWorld world(2, {.link = {.bytes_per_second = 1e9, .latency = milliseconds(500)}});
  const auto is_silent = [&] { return world.engine(0).peers().is_silent(WorldRank(1), world.now()); };
  world.run_for(milliseconds(700));
  EXPECT_FALSE(is_silent()) << "its first heartbeat arrives after 750 ms";
  world.run_for(seconds(1));
  world.network().stop(1);
  world.run_for(milliseconds(4600));
  EXPECT_FALSE(is_silent());
  world.run_for(milliseconds(600));
  EXPECT_TRUE(is_silent());
}

TEST(SlowPath, of_a_call_that_still_moves_says_how_fast) {
  SimWorld world(2, {.link = {.bytes_per_second = 1e6}});
  SimCall call(world, world_group(world), all_reduce(1 << 20, 2));
  for (const int rank : {0, 1}) call.post(rank, seconds(2));
  world.run_for(seconds(3));
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(call.done(rank));
    const ErrorInfo& failure = *call.failure(rank);
    if (contains(failure.message, "reports:")) continue;  // of the other rank's deadline
    EXPECT_EQ(failure.kind, ErrorKind::deadline_exceeded);
    EXPECT_TRUE(contains(failure.message, "moving at 7.")) << failure.message;
    EXPECT_TRUE(contains(failure.message, "Mbit/s): a slow path")) << failure.message;
  }
}

TEST(SlowPath, of_a_call_whose_peer_has_stopped_names_no_rate) {
  SimWorld world(2, {.link = {.bytes_per_second = 1e6}});
  SimCall call(world, world_group(world), all_reduce(1 << 20, 2));
  for (const int rank : {0, 1}) call.post(rank, seconds(4));
  world.run_for(seconds(1));
  world.network().stop(1);
  world.run_for(milliseconds(3100));
  EXPECT_GT(call.failure(0)->received_bytes, 0u);
  EXPECT_FALSE(contains(call.failure(0)->message, "moving at")) << call.failure(0)->message;
}

TEST(LeavingRank, waits_for_peers_that_have_not_said_goodbye_as_long_as_for_silent_ones) {
  for (const auto& [latency, least] : {std::pair(1, 2), std::pair(200, 8)}) {
    SimWorld world(3,
                   {.link = {.bytes_per_second = 1e9, .latency = milliseconds(latency)}, .peer_timeout = seconds(30)});
    engine::Engine& leaving = world.engine(0);
    EXPECT_EQ(leaving.leave_patience(), seconds(30));
    world.engine(1).say_goodbye();
    world.run_for(seconds(1));
    EXPECT_EQ(leaving.leave_patience(), seconds(30)) << "rank 2 may need what was sent";
    world.engine(2).say_goodbye();
    world.run_for(seconds(1));
    EXPECT_EQ(leaving.leave_patience(), seconds(least));
  }
}

TEST(LeavingRank, waits_for_nobody_long_after_a_failure) {
  SimWorld world(2);
  SimCall call(world, world_group(world), all_reduce(1000, 2));
  call.post(0, seconds(1));
  world.run_for(seconds(2));
  ASSERT_TRUE(call.done(0) && call.failure(0));
  EXPECT_EQ(world.engine(0).leave_patience(), seconds(2));
}

// Heartbeats have filled all the room on the way to a peer that has stopped.
TEST(LeavingRank, says_goodbye_once_to_each_peer_however_late_there_is_room) {
  SimWorld world(4);
  std::vector<int> goodbyes(4);
  world.network().set_tap([&](int from, int to, Bytes frame) {
    const auto kind = wire::decode_header(frame.data()).value().kind;
    if (from == 0 && kind == wire::FrameKind::goodbye) ++goodbyes[static_cast<std::size_t>(to)];
  });
  world.network().stop(2);
  world.run_for(seconds(100));
  world.engine(0).say_goodbye();
  world.run_for(seconds(1));
  EXPECT_EQ(goodbyes, (std::vector<int>{0, 1, 0, 1}));
  world.network().resume(2);
  world.run_for(seconds(1));
  EXPECT_EQ(goodbyes, (std::vector<int>{0, 1, 1, 1}));
}

}  // namespace
}  // namespace qccl::testing
