// The log on a virtual clock, where every time is known.
#include <gtest/gtest.h>

#include <deque>

#include "observe/log_store.h"
#include "plan/plan.h"
#include "qccl/log_report.h"
#include "support/sim_call.h"

namespace qccl::testing {
namespace {

using internal::LogStore;
using std::chrono::milliseconds;

constexpr int kWorld = 4;
constexpr int kCalls = 8;

class LoggedWorld {
 public:
  explicit LoggedWorld(const LogOptions& options = {.enabled = true}) {
    for (int rank = 0; rank < kWorld; ++rank) {
      stores_.push_back(std::make_shared<LogStore>(LogStore::Identity{.rank = rank, .world = kWorld}));
      stores_.back()->configure(options).take_or_throw();
    }
    world_ = std::make_unique<SimWorld>(kWorld, SimOptions{.logs = stores_});
  }

  SimWorld& operator*() { return *world_; }
  SimWorld* operator->() { return world_.get(); }
  RankLog log(int rank) const { return stores_[static_cast<std::size_t>(rank)]->read(); }
  std::vector<RankLog> logs() const {
    std::vector<RankLog> all;
    for (int rank = 0; rank < kWorld; ++rank) all.push_back(log(rank));
    return all;
  }
  // Runs each call on all ranks to its end; rank `late` posts some milliseconds after the others. Returns the total
  // number of milliseconds.
  double run(const engine::ResolvedCall& call, int calls, int late = -1) {
    Nanoseconds delay{0};
    for (int i = 0; i < calls; ++i) {
      SimCall each(*world_, world_group(*world_), call);
      for (int rank = 0; rank < kWorld; ++rank) {
        if (rank != late) each.post(rank);
      }
      if (late >= 0) {
        const TimePoint before = world_->now();
        world_->run_for(milliseconds(5));
        delay += world_->now() - before;
        each.post(late);
      }
      EXPECT_TRUE(world_->run(each.works()));
      EXPECT_EQ(each.verify(), "");
    }
    return std::chrono::duration<double, std::milli>(delay).count();
  }

 private:
  std::vector<std::shared_ptr<LogStore>> stores_;
  std::unique_ptr<SimWorld> world_;
};

engine::ResolvedCall all_reduce(std::uint64_t count, const CallOptions& options = {}) {
  return make_call(Collective::all_reduce, count, DataType::float32, kWorld, options);
}

TEST(Log, has_the_clocks_own_times) {
  LoggedWorld world;
  world->run_for(milliseconds(3));
  const TimePoint posted = world->now();
  SimCall call(*world, world_group(*world), all_reduce(50'000));
  call.post_all();
  ASSERT_TRUE(world->run_until([&] { return call.done(1); }));
  const TimePoint ended = world->now();
  ASSERT_TRUE(world->run(call.works()));
  const RankLog log = world.log(1);
  ASSERT_EQ(log.records.size(), 1u);
  EXPECT_EQ(log.records[0].times.posted_ns, posted.time_since_epoch().count());
  EXPECT_EQ(log.records[0].times.started_ns, posted.time_since_epoch().count());
  EXPECT_EQ(log.records[0].times.ended_ns, ended.time_since_epoch().count());
  EXPECT_EQ(log.records[0].times, call.works()[1]->times());
}

TEST(Log, of_a_call_that_waited_for_its_turn_says_when_it_began) {
  LoggedWorld world;
  std::deque<SimCall> calls;
  for (int i = 0; i < 2; ++i) {
    calls.emplace_back(*world, world_group(*world), all_reduce(3'000'000));
    calls.back().post_all();
  }
  ASSERT_TRUE(world->run(works_of(calls)));
  for (int rank = 0; rank < kWorld; ++rank) {
    const RankLog log = world.log(rank);
    ASSERT_EQ(log.records.size(), 2u);
    const OperationTimes& first = log.records[0].times;
    const OperationTimes& second = log.records[1].times;
    EXPECT_EQ(first.posted_ns, second.posted_ns);
    EXPECT_GT(first.ended_ns, first.started_ns);
    EXPECT_GE(second.started_ns, first.ended_ns);
    EXPECT_GT(second.ended_ns, second.started_ns);
  }
}

TEST(Log, counts_what_each_rank_sends) {
  LoggedWorld world;
  world.run(all_reduce(40'960, {.algorithm = Algorithm::sra}), 1);
  world.run(all_reduce(40'960, {.compression = minmax({.bits = 8}), .algorithm = Algorithm::sra}), 1);
  const std::uint64_t plain = 2 * 3 * 10'240 * 4;  // sends three chunks of the input, and its own sum to three peers
  for (int rank = 0; rank < kWorld; ++rank) {
    const auto records = world.log(rank).records;
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[0].payload_bytes, plain);
    EXPECT_EQ(records[0].compression_ratio(), 1);
    EXPECT_GT(records[0].wire_bytes, plain);
    EXPECT_EQ(records[1].plain_bytes, plain);
    EXPECT_GT(records[1].compression_ratio(), 3.9);
    EXPECT_EQ(records[1].compression, minmax({.bits = 8}));
    EXPECT_EQ(records[1].bytes, 163'840u);
  }
}

TEST(Log, names_the_rank_that_comes_late) {
  for (const int late : {0, 2, 3}) {
    for (const std::uint64_t count : {10, 40'000}) {
      LoggedWorld world;
      const double delay_ms = world.run(all_reduce(count), kCalls, late);
      ASSERT_GE(delay_ms, kCalls * 5);
      const StragglerReport report = find_stragglers(world.logs(), 1);
      EXPECT_EQ(report.compared, std::size_t{kCalls});
      EXPECT_EQ(report.incomplete, 0u);
      EXPECT_EQ(report.ranks.front().rank, late);
      EXPECT_EQ(report.ranks.front().last_in, std::size_t{kCalls});
      // Ranks end an operation within a millisecond of each other.
      EXPECT_NEAR(report.ranks.front().waited_for_ms, delay_ms, kCalls);
      ASSERT_EQ(report.operations.size(), 1u);
      EXPECT_NEAR(report.operations[0].total_straggler_ms, delay_ms, kCalls);
      EXPECT_LT(report.operations[0].average_comm_ms, 1);
    }
  }
}

TEST(Log, of_ranks_that_come_together_names_nobody_for_long) {
  LoggedWorld world;
  world.run(all_reduce(40'000), kCalls);
  const StragglerReport report = find_stragglers(world.logs(), 0);
  EXPECT_EQ(report.compared, std::size_t{kCalls});
  EXPECT_LT(report.ranks.front().waited_for_ms, kCalls * 0.5);
}

TEST(Log, has_what_failed_and_why) {
  LoggedWorld world;
  SimCall call(*world, world_group(*world), all_reduce(1000));
  for (const int rank : {0, 1, 3}) call.post(rank, milliseconds(20));
  ASSERT_TRUE(world->run(call.works()));
  const RankLog log = world.log(0);
  ASSERT_EQ(log.records.size(), 1u);
  EXPECT_NE(log.records[0].error.find("all_reduce"), std::string::npos) << log.records[0].error;
  EXPECT_GE(log.records[0].latency_ms(), 20);
  EXPECT_TRUE(summarize(log).empty());
  EXPECT_EQ(find_stragglers(world.logs(), 0).compared, 0u);
}

TEST(Log, that_is_off_has_nothing) {
  LoggedWorld world({.enabled = false});
  world.run(all_reduce(10), 3);
  EXPECT_TRUE(world.log(0).records.empty());
}

}  // namespace
}  // namespace qccl::testing
