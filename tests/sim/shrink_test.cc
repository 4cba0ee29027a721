// shrink() over the simulated network: the engines of all ranks agree on those that go on, whatever dies, stops or is
// cut off meanwhile. Every live caller has a verdict by its deadline, no two live ranks are in different groups, and
// the new group works.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/long_run.h"
#include "support/sim_call.h"

namespace qccl::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

engine::ResolvedCall all_reduce(std::uint64_t count, int world) {
  return make_call(Collective::all_reduce, count, DataType::float32, world);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr std::uint64_t kNewGroup = 77;

// One rank's call of shrink().
struct Caller {
  int rank;
  SimWorld::Shrinking shrinking;
  const internal::SharedFailure& failure() const { return shrinking.work->failure(); }
};

std::vector<Caller> call_shrink(SimWorld& world, const std::vector<int>& ranks, const SimShrink& call = {}) {
  std::vector<Caller> callers;
  for (const int rank : ranks) callers.push_back({rank, world.shrink(rank, call)});
  return callers;
}

std::vector<SimWork> works_of(const std::vector<Caller>& callers) {
  std::vector<SimWork> works;
  for (const Caller& caller : callers) works.push_back(caller.shrinking.work);
  return works;
}

void expect_members(SimWorld& world, const std::vector<Caller>& callers, const std::vector<int>& members,
                    Nanoseconds limit = seconds(1)) {
  ASSERT_TRUE(world.run(works_of(callers), limit));
  for (const Caller& caller : callers) {
    ASSERT_FALSE(caller.failure()) << caller.failure()->message;
    EXPECT_EQ(caller.shrinking.then(world_group(world).ranks), members) << "rank " << caller.rank;
  }
}

// Opens a group of the members that go on, and checks a sum of it.
std::string check_new_group(SimWorld& world, const std::vector<int>& members) {
  world.open_group(kNewGroup, "new", members);
  SimCall call(world, {kNewGroup, members}, all_reduce(10000, static_cast<int>(members.size())));
  call.post_all();
  if (!world.run(call.works())) return "the new group hangs";
  return call.verify();
}

TEST(Shrink, two_survivors_of_three_go_on) {
  SimWorld world(3);
  SimCall call(world, world_group(world), all_reduce(400000, 3));
  call.post_all();
  world.run_for(milliseconds(1));
  world.network().kill(1);
  world.run_for(milliseconds(5));
  ASSERT_TRUE(call.failure(0) && call.failure(2));
  expect_members(world, call_shrink(world, {0, 2}), {0, 2});
  EXPECT_EQ(check_new_group(world, {0, 2}), "");
  world.settle();
  EXPECT_EQ(world.held_frames(), 0u);
}

TEST(Shrink, without_a_failure_leaves_out_whom_the_callers_name) {
  SimWorld world(4);
  expect_members(world, call_shrink(world, {1, 3}, {.without = {0, 2}}), {1, 3});
  for (int rank = 0; rank < 4; ++rank) {
    SimCall call(world, world_group(world), all_reduce(10, 4));
    call.post(rank);
    world.run_for(milliseconds(1));
    ASSERT_TRUE(call.done(rank) && call.failure(rank)) << "the old group has ended";
    EXPECT_EQ(call.failure(rank)->kind, ErrorKind::aborted);
    EXPECT_TRUE(contains(call.failure(rank)->message, "ranks 1, 3")) << call.failure(rank)->message;
  }
  EXPECT_EQ(check_new_group(world, {1, 3}), "");
  world.open_group(9, "all", {0, 1, 2, 3});
  SimCall other(world, {9, {0, 1, 2, 3}}, all_reduce(1000, 4));
  other.post_all();
  ASSERT_TRUE(world.run(other.works()));
  EXPECT_EQ(other.verify(), "") << "connections stay, for other groups";
}

TEST(Shrink, names_lost_ranks_by_grade) {
  SimWorld world(4, {.peer_timeout = seconds(1)});
  world.engine(1).say_goodbye();
  world.network().kill(2);
  world.network().stop(3);
  SimCall call(world, world_group(world), all_reduce(10, 4));
  call.post(0, seconds(100));
  world.run_for(seconds(3));
  std::vector<LostRank> lost = world.engine(0).shrinker().lost(kSimGroup);
  ASSERT_GE(lost.size(), 2u);
  EXPECT_EQ(lost[0].rank, 1);
  EXPECT_EQ(lost[0].grade, LossGrade::left) << lost[0].reason;
  EXPECT_EQ(lost[1].rank, 2);
  EXPECT_EQ(lost[1].grade, LossGrade::gone);
  EXPECT_EQ(lost[1].reason, "rank 2 was lost: closed the connection (end of file)");
}

TEST(Shrink, a_stopped_rank_is_left_out_after_the_patience_and_told_when_it_goes_on) {
  SimWorld world(3);
  SimCall call(world, world_group(world), all_reduce(100000, 3));
  for (int rank = 0; rank < 3; ++rank) call.post(rank, seconds(5));
  world.network().stop(1);
  world.run_for(seconds(6));
  ASSERT_TRUE(call.failure(0) && call.failure(2));
  const auto callers = call_shrink(world, {0, 2}, {.patience = seconds(8)});
  world.run_for(seconds(1));
  EXPECT_FALSE(callers[0].shrinking.work->done()) << "before the patience is over";
  expect_members(world, callers, {0, 2}, seconds(3));
  EXPECT_EQ(check_new_group(world, {0, 2}), "");
  EXPECT_EQ(world.engine(0).shrinker().lost(kSimGroup)[0].grade, LossGrade::silent);
  world.network().resume(1);
  world.run_for(milliseconds(100));
  SimCall next(world, world_group(world), all_reduce(10, 3));
  next.post(1);
  world.run_for(milliseconds(10));
  ASSERT_TRUE(next.done(1) && next.failure(1));
  EXPECT_EQ(next.failure(1)->kind, ErrorKind::aborted) << next.failure(1)->message;
  EXPECT_TRUE(contains(next.failure(1)->message, "ranks 0, 2 went on without this rank")) << next.failure(1)->message;
  const auto late = call_shrink(world, {1});
  ASSERT_TRUE(world.run(works_of(late), seconds(1)));
  EXPECT_EQ(late[0].failure()->kind, ErrorKind::aborted);
  EXPECT_TRUE(contains(late[0].failure()->message, "ranks 0, 2 went on")) << late[0].failure()->message;
  EXPECT_EQ(world.engine(1).shrinker().lost(kSimGroup).size(), 2u) << "they have closed their connections to it";
}

TEST(Shrink, the_smaller_part_of_a_divided_network_does_not_go_on) {
  SimWorld world(5);
  for (const int a : {0, 3}) {
    for (const int b : {1, 2, 4}) world.network().link(a, b).is_cut = world.network().link(b, a).is_cut = true;
  }
  const auto callers = call_shrink(world, {0, 1, 2, 3, 4});
  ASSERT_TRUE(world.run(works_of(callers), seconds(20)));
  for (const int rank : {1, 2, 4}) {
    const Caller& caller = callers[static_cast<std::size_t>(rank)];
    ASSERT_FALSE(caller.failure()) << caller.failure()->message;
    EXPECT_EQ(caller.shrinking.then({0, 1, 2, 3, 4}), (std::vector{1, 2, 4}));
  }
  for (const int rank : {0, 3}) {
    const auto& failure = callers[static_cast<std::size_t>(rank)].failure();
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->kind, ErrorKind::aborted);
    EXPECT_TRUE(contains(failure->message, "too few to go on: 2 of 5, the others may still be running"))
        << failure->message;
  }
}

TEST(Shrink, a_member_that_has_closed_the_group_is_not_waited_for) {
  SimWorld world(3);
  world.engine(1).groups().close(kSimGroup);
  expect_members(world, call_shrink(world, {0, 2}), {0, 2});
}

TEST(Shrink, a_member_that_closes_the_group_meanwhile_is_waited_for_no_longer) {
  SimWorld world(3);
  const auto callers = call_shrink(world, {0, 2});
  world.run_for(milliseconds(5));
  ASSERT_FALSE(callers[0].shrinking.work->done());
  world.engine(1).groups().close(kSimGroup);
  expect_members(world, callers, {0, 2});
  const std::vector<LostRank> lost = world.engine(0).shrinker().lost(kSimGroup);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].grade, LossGrade::left);
  EXPECT_EQ(lost[0].reason, "rank 1 closed the group");
}

TEST(Shrink, a_second_time_is_misuse_because_the_group_has_its_successor) {
  SimWorld world(3);
  expect_members(world, call_shrink(world, {0, 1, 2}), {0, 1, 2});
  const auto again = call_shrink(world, {1});
  ASSERT_TRUE(world.run(works_of(again), seconds(1)));
  EXPECT_EQ(again[0].failure()->kind, ErrorKind::misuse);
  EXPECT_TRUE(contains(again[0].failure()->message, "was shrunk before; shrink the group that shrink() returned"))
      << again[0].failure()->message;
}

TEST(Shrink, ends_with_its_group) {
  SimWorld world(2);
  const auto callers = call_shrink(world, {0});
  world.engine(0).groups().close(kSimGroup);
  ASSERT_TRUE(world.run(works_of(callers), seconds(1)));
  EXPECT_EQ(callers[0].failure()->kind, ErrorKind::misuse);
}

TEST(Shrink, twice_at_once_is_misuse) {
  SimWorld world(2);
  const auto first = call_shrink(world, {0});
  const auto second = call_shrink(world, {0});
  ASSERT_TRUE(world.run(works_of(second), seconds(1)));
  EXPECT_EQ(second[0].failure()->kind, ErrorKind::misuse);
  expect_members(world, {first[0], call_shrink(world, {1})[0]}, {0, 1});
}

TEST(Shrink, a_damaged_frame_gives_its_sender_up) {
  SimWorld world(3);
  world.network().set_tap([](int from, int to, Bytes frame) {
    const auto header = wire::decode_header(frame.data()).value();
    if (from == 2 && to == 0 && header.kind == wire::FrameKind::member_list) frame.back() ^= std::byte{1};
  });
  const auto callers = call_shrink(world, {0, 1, 2});
  ASSERT_TRUE(world.run(works_of(callers), seconds(20)));
  for (const int rank : {0, 1}) EXPECT_FALSE(callers[static_cast<std::size_t>(rank)].failure());
  EXPECT_TRUE(callers[2].failure());
}

// ---- random programs

class Program {
 public:
  explicit Program(std::uint64_t seed) : random_(seed), world_(static_cast<int>(2 + random_.below(5)), options(seed)) {}

  // Returns what went wrong, or "".
  std::string run() {
    SimCall call(world_, world_group(world_), all_reduce(1 + random_.below(60000), world_.size()));
    call.post_all();
    world_.run_for(microseconds(random_.below(1500)));
    const bool on_purpose = random_.below(5) == 0;
    const SimShrink shrink{.without = on_purpose ? std::vector{draw_rank()} : std::vector<int>{}};
    const int leaver = random_.below(4) == 0 ? draw_rank() : -1;
    if (leaver >= 0) leave(leaver);
    fault();
    plan_fault_at_a_frame();
    if (random_.below(2) == 0) plan_fault_at_a_frame();
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (random_.below(3) == 0) world_.run_for(microseconds(random_.below(500)));
      const bool is_left_out = on_purpose && rank == shrink.without[0];
      const bool may_call = rank != leaver && !is_left_out && world_.network().running(rank);
      if (may_call) callers_.push_back({rank, world_.shrink(rank, shrink)});
    }
    world_.run_until([this] { return all_have_verdicts(); }, seconds(25));
    if (!all_have_verdicts()) return "a live caller has no verdict by its deadline";
    for (int rank = 0; rank < world_.size(); ++rank) world_.network().resume(rank);
    world_.run_for(seconds(1));
    taps_.clear();  // no more faults
    return check_worlds();
  }

 private:
  static SimOptions options(std::uint64_t seed) {
    SimOptions options{.seed = seed};
    options.link.latency = microseconds(20 + seed % 7 * 30);
    options.link.jitter = microseconds(seed % 3 * 100);
    return options;
  }
  int draw_rank() { return static_cast<int>(random_.below(static_cast<std::uint64_t>(world_.size()))); }

  void leave(int rank) {
    world_.engine(rank).groups().close(kSimGroup);
    world_.engine(rank).say_goodbye();
  }

  void fault() {
    const int victim = draw_rank();
    const int other = draw_rank();
    const std::uint64_t kind = random_.below(5);
    only_kills_ = only_kills_ && kind > 2;
    switch (kind) {
      case 0: return world_.network().stop(victim);
      case 1: world_.network().link(other, victim).is_cut = other != victim; [[fallthrough]];
      case 2: world_.network().link(victim, other).is_cut = other != victim; return;
      default: return world_.network().kill(victim);
    }
  }

  // Before one of the frames of the agreement, or of the goodbyes and the ends that follow it.
  void plan_fault_at_a_frame() {
    const auto number = random_.below(100);
    const auto seen = std::make_shared<std::uint64_t>(0);
    taps_.push_back([this, number, seen] {
      if ((*seen)++ == number) fault();
    });
    world_.network().set_tap([this](int, int, Bytes frame) {
      const auto kind = wire::decode_header(frame.data()).value().kind;
      if (kind != wire::FrameKind::member_list && kind != wire::FrameKind::given_up) return;
      for (const auto& tap : taps_) tap();
    });
  }

  bool all_have_verdicts() {
    return std::ranges::all_of(callers_, [this](const Caller& caller) {
      return caller.shrinking.work->done() || !world_.network().running(caller.rank);
    });
  }

  bool has_ended(const std::vector<int>& members) {
    return std::ranges::none_of(members, [this](int rank) { return world_.network().running(rank); });
  }

  bool is_well_connected(int rank, const std::vector<int>& members) {
    return world_.network().running(rank) && std::ranges::none_of(members, [&](int other) {
             return world_.network().link(rank, other).is_cut || world_.engine(rank).peers()[WorldRank(other)].loss();
           });
  }

  // At most one group of live ranks, which works if none of its members was lost meanwhile. Where every end is certain,
  // all that live are in it.
  std::string check_worlds() {
    std::vector<int> found;
    for (const Caller& caller : callers_) {
      const bool must_go_on = only_kills_ && world_.network().running(caller.rank);
      if (must_go_on && caller.failure()) return caller.failure()->message;
      if (!caller.shrinking.work->done() || caller.failure()) continue;
      const auto members = caller.shrinking.then(world_group(world_).ranks);
      if (has_ended(members)) continue;
      if (!found.empty() && members != found) {
        return fmt::format("ranks {} and ranks {} go on", fmt::join(found, ", "), fmt::join(members, ", "));
      }
      found = members;
    }
    const bool all_live = std::ranges::all_of(found, [&](int rank) { return is_well_connected(rank, found); });
    return found.empty() || !all_live ? "" : check_new_group(world_, found);
  }

  Random random_;
  SimWorld world_;
  std::vector<Caller> callers_;
  std::vector<std::function<void()>> taps_;
  bool only_kills_ = true;  // no stop, no cut
};

constexpr std::uint64_t kFirstSeed = 20261125;

// SHRINK_PROGRAMS says how many, SHRINK_SEED the first seed.
TEST(ShrinkProgram, of_random_faults_splits_no_group_and_never_hangs) {
  const std::uint64_t programs = environment_number("SHRINK_PROGRAMS", 400);
  const std::uint64_t first = environment_number("SHRINK_SEED", kFirstSeed);
  Progress progress(programs);
  for (std::uint64_t seed = first; seed < first + programs; ++seed) {
    ASSERT_EQ(Program(seed).run(), "") << "to replay: SHRINK_PROGRAMS=1 SHRINK_SEED=" << seed
                                       << " build/tests/qccl_test_sim --gtest_filter='ShrinkProgram.*'";
    progress.count_one();
  }
}

}  // namespace
}  // namespace qccl::testing
