#include "sim/simulated_job.h"

#include <gtest/gtest.h>

#include <numeric>

namespace qccl::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kGroup = 1;
constexpr Nanoseconds kNever = Nanoseconds::max();

// Without heartbeats, so that only the test's actions advance time.
SimulatedJobOptions quiet(int ranks) {
  SimulatedJobOptions options;
  options.ranks = ranks;
  options.links.latency = microseconds(10);
  options.engine.heartbeat_interval = kNever;
  options.engine.peer_timeout = kNever;
  return options;
}

void open_group(SimulatedJob& world) {
  std::vector<int> everyone(static_cast<std::size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  for (const int rank : everyone) world.engine(rank).groups().open(kGroup, "world", everyone).take_or_throw();
}

std::shared_ptr<internal::WorkState> post_barrier(SimulatedJob& world, int rank, Nanoseconds timeout) {
  const auto work = std::make_shared<internal::WorkState>();
  engine::CallArguments arguments;
  arguments.group = kGroup;
  arguments.plan =
      std::make_shared<const engine::ExecutablePlan>(engine::ResolvedCall{}, world.size(), GroupRank(rank), nullptr);
  arguments.timeout = timeout;
  arguments.work = work;
  world.engine(rank).post(std::move(arguments));
  return work;
}

TEST(SimulatedJob, time_goes_on_to_the_next_arrival_and_stops_where_nothing_is_left) {
  SimulatedJob world(quiet(2));
  open_group(world);
  std::vector<int> ended;
  world.on_end([&](int rank) { ended.push_back(rank); });
  const auto first = post_barrier(world, 0, kNever);
  while (world.now() < TimePoint{} + microseconds(10) && world.step()) {
  }
  EXPECT_EQ(world.now(), TimePoint{} + microseconds(10));
  EXPECT_FALSE(first->done());
  const auto second = post_barrier(world, 1, kNever);
  ASSERT_TRUE(world.run_until([&] { return first->done() && second->done(); }, seconds(1)));
  EXPECT_EQ(world.now(), TimePoint{} + microseconds(20));
  EXPECT_EQ(ended, (std::vector<int>{1, 0}));
}

TEST(SimulatedJob, has_no_next_step_where_nobody_will_ever_move) {
  SimulatedJob world(quiet(2));
  open_group(world);
  const auto alone = post_barrier(world, 0, kNever);
  EXPECT_FALSE(world.run_until([&] { return alone->done(); }, seconds(1000)));
  EXPECT_LT(world.now(), TimePoint{} + seconds(1));
}

TEST(SimulatedJob, a_timer_is_met_at_its_time_though_nothing_arrives) {
  SimulatedJob world(quiet(2));
  open_group(world);
  const auto alone = post_barrier(world, 0, milliseconds(7));
  ASSERT_TRUE(world.run_until([&] { return alone->done(); }, seconds(1)));
  EXPECT_EQ(world.now(), TimePoint{} + milliseconds(7));
  ASSERT_TRUE(alone->failure());
  EXPECT_EQ(alone->failure()->kind, ErrorKind::deadline_exceeded);
}

TEST(SimulatedJob, a_limit_ends_a_run_that_would_go_on) {
  SimulatedJobOptions options = quiet(2);
  options.engine.heartbeat_interval = milliseconds(1);
  SimulatedJob world(std::move(options));
  EXPECT_FALSE(world.run_until([] { return false; }, milliseconds(20)));
  EXPECT_GE(world.now(), TimePoint{} + milliseconds(20));
  EXPECT_LE(world.now(), TimePoint{} + milliseconds(22));
}

TEST(SimulatedJob, events_come_in_the_order_of_their_times_and_a_stopped_rank_has_no_timers) {
  SimulatedJobOptions options = quiet(2);
  options.engine.heartbeat_interval = milliseconds(250);
  SimulatedJob world(std::move(options));
  open_group(world);
  std::vector<TimePoint> seen;
  const auto note = [&] { seen.push_back(world.now()); };
  world.at(TimePoint{} + milliseconds(2), note);
  world.at(TimePoint{} + milliseconds(1), note);
  world.at(TimePoint{} + milliseconds(3), [&] {
    world.network().stop(0);
    world.network().stop(1);
  });
  EXPECT_FALSE(world.run_until([] { return false; }, seconds(10)));
  EXPECT_EQ(seen, (std::vector<TimePoint>{TimePoint{} + milliseconds(1), TimePoint{} + milliseconds(2)}));
  EXPECT_LT(world.now(), TimePoint{} + seconds(1));
}

TEST(SimulatedJob, ranks_may_differ_in_their_slices) {
  SimulatedJobOptions options = quiet(2);
  options.engine.slice_bytes = 4096;
  options.slice_bytes_of_rank = {8192, 16384};
  SimulatedJob world(std::move(options));
  EXPECT_EQ(world.engine(0).options().slice_bytes, 8192u);
  EXPECT_EQ(world.engine(1).options().slice_bytes, 16384u);
}

}  // namespace
}  // namespace qccl::sim
