// Ranks that die, stop, leave or give up: every other rank gets a typed error that names the rank, the
// operation and its progress; never a hang, never a result, nothing leaked.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/sim_call.h"

namespace qccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

engine::ResolvedCall all_reduce(std::uint64_t count, int world, const CallOptions& options = {}) {
  return make_call(Collective::all_reduce, count, DataType::float32, world, options);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Posts on all ranks and lets virtual time pass until the operation is under way.
void begin(SimWorld& world, SimCall& call, Nanoseconds underway) {
  call.post_all();
  world.run_for(underway);
}

// ---- killed

struct Case {
  const char* name;
  engine::ResolvedCall call;
};

std::vector<Case> calls_in_which_all_ranks_meet(int world) {
  return {{"one_shot", all_reduce(1000, world)},
          {"sra", all_reduce(400000, world)},
          {"compressed", all_reduce(400000, world, {.compression = minmax({.bits = 4})})},
          {"reduce_scatter", make_call(Collective::reduce_scatter, 100000, DataType::float32, world)},
          {"all_gather", make_call(Collective::all_gather, 100000, DataType::float32, world)},
          {"broadcast", make_call(Collective::broadcast, 400000, DataType::float32, world, {.root = 1})},
          {"barrier", make_call(Collective::barrier, 0, DataType::uint8, world)}};
}

// The rank dies before it posts, so no rank can have finished.
TEST(KilledRank, before_its_call_fails_every_other_rank_and_is_named) {
  for (const Case& each : calls_in_which_all_ranks_meet(4)) {
    for (int victim = 0; victim < 4; ++victim) {
      SCOPED_TRACE(fmt::format("{}, rank {} dies", each.name, victim));
      if (each.call.collective == Collective::broadcast && victim != each.call.root) continue;
      SimWorld world(4, {.seed = 3});
      SimCall call(world, world_group(world), each.call);
      for (int rank = 0; rank < 4; ++rank) {
        if (rank != victim) call.post(rank);
      }
      world.run_for(milliseconds(5));
      world.network().kill(victim);
      world.run_for(milliseconds(10));
      for (int rank = 0; rank < 4; ++rank) {
        if (rank == victim) continue;
        ASSERT_TRUE(call.done(rank)) << "rank " << rank << " hangs";
        const ErrorInfo& failure = *call.failure(rank);
        EXPECT_EQ(failure.kind, ErrorKind::peer_lost) << failure.message;
        EXPECT_EQ(failure.peer, victim) << failure.message;
        EXPECT_EQ(failure.rank, rank);
        EXPECT_TRUE(contains(failure.message, fmt::format("rank {} was lost", victim))) << failure.message;
        EXPECT_TRUE(contains(failure.message, each.call.describe())) << failure.message;
      }
      world.settle();
      EXPECT_EQ(world.held_frames(), 0u);
    }
  }
}

// The rank dies at any moment of a large operation: each other rank ends with the right result or that error.
TEST(KilledRank, at_any_moment_leaves_every_other_rank_with_a_result_or_its_name) {
  int failures = 0;
  for (int moment = 0; moment < 60; ++moment) {
    const int victim = moment % 4;
    SimWorld world(4, {.seed = static_cast<std::uint64_t>(moment), .slice_bytes = 16384});
    SimCall call(world, world_group(world), all_reduce(200000, 4));
    begin(world, call, std::chrono::microseconds(40 * moment));
    world.network().kill(victim);
    SimCall next(world, world_group(world), all_reduce(10, 4));
    for (int rank = 0; rank < 4; ++rank) {
      if (rank != victim) next.post(rank);
    }
    world.run_for(milliseconds(50));
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      SCOPED_TRACE(fmt::format("moment {}, rank {} of 4, rank {} dies", moment, rank, victim));
      ASSERT_TRUE(call.done(rank) && next.done(rank)) << "hangs";
      ASSERT_TRUE(next.failure(rank)) << "a call without the dead rank succeeds";
      EXPECT_EQ(next.failure(rank)->kind, ErrorKind::peer_lost);
      EXPECT_EQ(next.failure(rank)->peer, victim);
      if (!call.failure(rank)) continue;
      ++failures;
      EXPECT_EQ(call.failure(rank)->message, next.failure(rank)->message) << "the first failure stays";
    }
    world.settle();
    EXPECT_EQ(world.held_frames(), 0u);
  }
  EXPECT_GT(failures, 50) << "the test meant to hit running operations";
}

TEST(KilledRank, is_no_business_of_groups_without_it) {
  SimWorld world(4);
  world.open_group(2, "pair", {0, 1});
  SimCall all(world, world_group(world), all_reduce(400000, 4));
  begin(world, all, milliseconds(1));
  world.network().kill(3);
  world.run_for(milliseconds(20));
  EXPECT_TRUE(all.failure(0));
  SimCall pair(world, {2, {0, 1}}, all_reduce(100000, 2));
  pair.post_all();
  ASSERT_TRUE(world.run(pair.works()));
  EXPECT_EQ(pair.verify(), "");
}

TEST(KilledRank, fails_a_group_that_is_opened_afterwards) {
  SimWorld world(3);
  world.network().kill(2);
  world.run_for(milliseconds(1));
  for (const int rank : {0, 1}) world.open_group_on(rank, 9, "late", {0, 1, 2});
  SimCall call(world, {9, {0, 1, 2}}, all_reduce(100, 3));
  call.post(0);
  call.post(1);
  world.run_for(milliseconds(5));
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(call.done(rank)) << "hangs until its deadline";
    EXPECT_EQ(call.failure(rank)->kind, ErrorKind::peer_lost);
    EXPECT_EQ(call.failure(rank)->peer, 2);
  }
}

// ---- stopped

TEST(StoppedRank, is_named_at_the_deadline_with_the_bytes_that_came) {
  for (const Case& each : calls_in_which_all_ranks_meet(3)) {
    if (each.call.collective == Collective::broadcast) continue;
    SCOPED_TRACE(each.name);
    SimWorld world(3);
    SimCall call(world, world_group(world), each.call);
    world.network().stop(2);
    for (const int rank : {0, 1}) call.post(rank, seconds(5));
    world.run_for(milliseconds(4900));
    EXPECT_FALSE(call.done(0) || call.done(1)) << "before the deadline";
    world.run_for(milliseconds(300));
    for (const int rank : {0, 1}) {
      ASSERT_TRUE(call.done(rank)) << "rank " << rank << " hangs";
      const ErrorInfo& failure = *call.failure(rank);
      EXPECT_EQ(failure.kind, ErrorKind::deadline_exceeded) << failure.message;
      EXPECT_EQ(failure.peer, 2) << failure.message;
      EXPECT_EQ(failure.operation, to_string(each.call.collective));
      EXPECT_EQ(failure.sequence, 1u);
      EXPECT_TRUE(contains(failure.message, "rank 2")) << failure.message;
      EXPECT_TRUE(
          contains(failure.message, fmt::format("got {} of {} bytes", failure.received_bytes, failure.expected_bytes)))
          << failure.message;
      EXPECT_LE(failure.received_bytes, failure.expected_bytes);
    }
    world.settle();
    EXPECT_EQ(world.held_frames(), 0u);
  }
}

// The rank stops at any moment of an operation that all depend on: every rank that fails names the stopped rank.
TEST(StoppedRank, at_any_moment_is_the_one_that_is_named) {
  int failures = 0;
  for (int moment = 0; moment < 40; ++moment) {
    const int victim = moment % 4;
    SimWorld world(4, {.seed = static_cast<std::uint64_t>(moment), .slice_bytes = 16384});
    SimCall call(world, world_group(world), all_reduce(200000, 4));
    for (int rank = 0; rank < 4; ++rank) call.post(rank, seconds(3));
    world.run_for(std::chrono::microseconds(60 * moment));
    world.network().stop(victim);
    world.run_for(seconds(4));
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      SCOPED_TRACE(fmt::format("moment {}, rank {} of 4, rank {} stops", moment, rank, victim));
      ASSERT_TRUE(call.done(rank)) << "hangs";
      if (!call.failure(rank)) continue;
      ++failures;
      EXPECT_EQ(call.failure(rank)->kind, ErrorKind::deadline_exceeded);
      EXPECT_EQ(call.failure(rank)->peer, victim) << call.failure(rank)->message;
    }
  }
  EXPECT_GT(failures, 50) << "the test meant to hit running operations";
}

// One bucket holds everything, so rank 0 owns it all and rank 1 waits only for rank 0.
TEST(StoppedRank, is_named_by_ranks_that_wait_for_another_one) {
  SimWorld world(3);
  const CallOptions options{.compression = minmax({.bits = 4, .bucket_size = 65536}), .algorithm = Algorithm::sra};
  SimCall call(world, world_group(world), all_reduce(1000, 3, options));
  world.network().stop(2);
  call.post(1, seconds(5));
  world.run_for(seconds(1));
  call.post(0, seconds(5));
  world.run_for(seconds(6));
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(call.done(rank)) << "hangs";
    EXPECT_EQ(call.failure(rank)->kind, ErrorKind::deadline_exceeded);
    EXPECT_EQ(call.failure(rank)->peer, 2) << call.failure(rank)->message;
    EXPECT_TRUE(contains(call.failure(rank)->message, "rank 2")) << call.failure(rank)->message;
  }
}

// A root waits for one receiver's grant; the other receivers must not wait with it, nor be blamed.
TEST(StoppedRank, that_receives_a_broadcast_holds_up_nobody_else) {
  for (const int victim : {1, 2, 3}) {
    SimWorld world(4, {.slice_bytes = 16384});
    SimCall call(world, world_group(world),
                 make_call(Collective::broadcast, 400000, DataType::float32, 4, {.algorithm = Algorithm::one_shot}));
    world.network().stop(victim);
    for (int rank = 0; rank < 4; ++rank) call.post(rank, seconds(5));
    world.run_for(seconds(6));
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      SCOPED_TRACE(fmt::format("rank {}, rank {} stopped", rank, victim));
      ASSERT_TRUE(call.done(rank));
      EXPECT_EQ(call.failure(rank) != nullptr, rank == 0) << "only the root's part is not done";
    }
    EXPECT_EQ(call.failure(0)->kind, ErrorKind::deadline_exceeded);
    EXPECT_EQ(call.failure(0)->peer, victim) << call.failure(0)->message;
  }
}

TEST(StoppedRank, of_a_split_broadcast_is_named_by_everybody_who_fails) {
  for (const int victim : {0, 1, 2, 3}) {
    SimWorld world(4, {.slice_bytes = 16384});
    SimCall call(world, world_group(world),
                 make_call(Collective::broadcast, 400000, DataType::float32, 4, {.algorithm = Algorithm::sra}));
    world.network().stop(victim);
    for (int rank = 0; rank < 4; ++rank) call.post(rank, seconds(5));
    world.run_for(seconds(6));
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      SCOPED_TRACE(fmt::format("rank {}, rank {} stopped", rank, victim));
      ASSERT_TRUE(call.done(rank) && call.failure(rank));
      EXPECT_EQ(call.failure(rank)->kind, ErrorKind::deadline_exceeded);
      EXPECT_EQ(call.failure(rank)->peer, victim) << call.failure(rank)->message;
    }
  }
}

TEST(StoppedRank, bytes_got_and_expected_are_those_of_the_operation) {
  SimWorld world(3);
  SimCall call(world, world_group(world), make_call(Collective::all_gather, 1000, DataType::float32, 3));
  world.network().stop(2);
  call.post(0, seconds(1));
  call.post(1, seconds(1));
  world.run_for(milliseconds(1100));
  EXPECT_EQ(call.failure(0)->received_bytes, 4000u) << "rank 1's part";
  EXPECT_EQ(call.failure(0)->expected_bytes, 8000u) << "rank 1's and rank 2's";
}

// Stops the rank at any moment. If rank 0 sends its part of the sum to rank 1 first, rank 2 waits for rank 0 as well.
TEST(StoppedRank, is_whom_the_others_say_that_they_wait_for) {
  for (Nanoseconds underway{}; underway < milliseconds(5); underway += std::chrono::microseconds(250)) {
    SimWorld world(3);
    SimCall call(world, world_group(world), all_reduce(1 << 20, 3));
    begin(world, call, underway);
    world.network().stop(1);
    world.run_for(seconds(2));
    for (const int rank : {0, 2}) {
      RankStatus status;
      world.engine(rank).report(status);
      if (call.done(rank)) continue;
      ASSERT_EQ(status.calls.size(), 1u);
      EXPECT_EQ(status.calls[0].waits_for, std::vector{1}) << "rank " << rank << ", stopped at " << underway.count();
    }
    EXPECT_FALSE(call.done(0) && call.done(2)) << "stopped too late";
  }
}

TEST(StoppedRank, is_found_by_its_silence_where_the_deadline_is_far) {
  SimWorld world(3, {.peer_timeout = seconds(20)});
  SimCall call(world, world_group(world), all_reduce(1000, 3));
  world.network().stop(2);
  call.post(0, std::chrono::hours(10));
  call.post(1, std::chrono::hours(10));
  world.run_for(seconds(18));
  EXPECT_FALSE(call.done(0) || call.done(1));
  world.run_for(seconds(5));
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(call.done(rank));
    EXPECT_EQ(call.failure(rank)->kind, ErrorKind::peer_lost);
    EXPECT_EQ(call.failure(rank)->peer, 2);
    EXPECT_TRUE(contains(call.failure(rank)->message, "silent")) << call.failure(rank)->message;
  }
}

TEST(SlowRank, that_lives_is_waited_for_until_the_deadline) {
  SimWorld world(3, {.peer_timeout = seconds(5)});
  SimCall call(world, world_group(world), all_reduce(1000, 3));
  for (const int rank : {0, 1}) call.post(rank, seconds(100));
  world.run_for(seconds(90));
  EXPECT_FALSE(call.done(0) || call.done(1)) << "its heartbeats say that it lives";
  call.post(2);
  ASSERT_TRUE(world.run(call.works()));
  EXPECT_EQ(call.verify(), "");
}

// With recursive doubling rank 1 waits for rank 3, which waits for rank 2.
TEST(Deadline, names_who_is_waited_for_along_the_way_to_the_rank_that_is_missing) {
  SimWorld world(4);
  engine::ResolvedCall doubling = all_reduce(1000, 4);
  doubling.algorithm = Algorithm::recursive_doubling;
  SimCall call(world, world_group(world), doubling);
  for (const int rank : {0, 1, 3}) call.post(rank, seconds(2));
  world.run_for(milliseconds(2100));
  EXPECT_EQ(call.failure(0)->peer, 2);
  EXPECT_EQ(call.failure(1)->peer, 3);
  EXPECT_EQ(call.failure(3)->peer, 2);
}

TEST(Deadline, of_an_operation_that_a_rank_does_not_make_names_the_rank) {
  SimWorld world(4);
  engine::ResolvedCall direct = all_reduce(1000, 4);
  direct.algorithm = Algorithm::one_shot;
  SimCall call(world, world_group(world), direct);
  for (const int rank : {0, 1, 3}) call.post(rank, seconds(2));
  world.run_for(milliseconds(2100));
  for (const int rank : {0, 1, 3}) {
    ASSERT_TRUE(call.done(rank));
    EXPECT_EQ(call.failure(rank)->kind, ErrorKind::deadline_exceeded);
    EXPECT_EQ(call.failure(rank)->peer, 2) << call.failure(rank)->message;
  }
  call.post(2, seconds(2));
  world.run_for(milliseconds(10));
  ASSERT_TRUE(call.done(2)) << "the late rank must not wait for those that gave up";
  EXPECT_EQ(call.failure(2)->kind, ErrorKind::deadline_exceeded);
}

// ---- left in good order

// One-way cut: in 30 s heartbeats fill what the connection takes, and the poison for rank 2 waits.
TEST(Goodbye, does_not_wait_for_a_peer_that_takes_nothing) {
  SimWorld world(3, {.link = {.slots = 1}});
  world.open_group(2, "pair", {0, 2});
  world.network().link(0, 2).is_cut = true;
  world.run_for(seconds(30));
  world.engine(0).groups().fail(2, {.kind = ErrorKind::aborted, .message = "enough"});
  SimCall call(world, world_group(world), all_reduce(1000, 3));
  call.post(1);
  world.run_for(milliseconds(1));
  world.engine(0).say_goodbye();
  world.run_for(milliseconds(5));
  ASSERT_TRUE(call.done(1)) << "hangs";
  EXPECT_EQ(call.failure(1)->peer, 0);
}

TEST(Goodbye, of_a_rank_fails_the_operations_that_wait_for_it) {
  SimWorld world(3);
  SimCall call(world, world_group(world), all_reduce(1000, 3));
  call.post(0);
  call.post(1);
  world.run_for(milliseconds(1));
  world.engine(2).say_goodbye();
  world.run_for(milliseconds(5));
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(call.done(rank)) << "hangs";
    EXPECT_EQ(call.failure(rank)->kind, ErrorKind::peer_lost);
    EXPECT_EQ(call.failure(rank)->peer, 2);
    EXPECT_TRUE(contains(call.failure(rank)->message, "rank 2")) << call.failure(rank)->message;
    EXPECT_TRUE(contains(call.failure(rank)->message, "left")) << call.failure(rank)->message;
  }
}

TEST(Goodbye, of_a_rank_fails_later_calls_at_once) {
  SimWorld world(3);
  world.engine(2).say_goodbye();
  world.settle();
  SimCall call(world, world_group(world), all_reduce(1000, 3));
  call.post(0);
  world.run_for(milliseconds(1));
  ASSERT_TRUE(call.done(0));
  EXPECT_EQ(call.failure(0)->kind, ErrorKind::peer_lost);
  EXPECT_EQ(call.failure(0)->peer, 2);
}

// A root may be done and gone before its peers have called: they must still get its data.
TEST(Goodbye, of_a_root_that_has_sent_everything_is_no_failure) {
  for (const bool closes : {false, true}) {
    SimWorld world(3);
    SimCall call(world, world_group(world), make_call(Collective::broadcast, 1000, DataType::float32, 3, {.root = 1}));
    call.post(1);
    ASSERT_TRUE(world.run(call.works()));
    if (closes) world.engine(1).groups().close(kSimGroup);
    world.engine(1).say_goodbye();
    world.settle();
    if (closes) world.network().kill(1);
    world.run_for(milliseconds(1));
    call.post(0);
    call.post(2);
    ASSERT_TRUE(world.run(call.works(), seconds(1)));
    EXPECT_EQ(call.verify(), "");
  }
}

TEST(Goodbye, of_everybody_after_the_last_operation_is_no_failure) {
  SimWorld world(4);
  SimCall call(world, world_group(world), all_reduce(100000, 4));
  call.post_all();
  std::vector<bool> gone(4, false);
  ASSERT_TRUE(world.run_until([&] {
    for (int rank = 0; rank < 4; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (gone[at] || !call.done(rank)) continue;
      world.engine(rank).say_goodbye();
      gone[at] = true;
    }
    return gone == std::vector<bool>(4, true);
  }));
  EXPECT_EQ(call.verify(), "");
}

// ---- aborted

TEST(Abort, poisons_every_rank_with_its_reason) {
  SimWorld world(4);
  SimCall call(world, world_group(world), all_reduce(400000, 4));
  begin(world, call, milliseconds(1));
  world.engine(1).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "aborted: the loss is NaN"});
  while (const auto ended = world.engine(1).take_ended()) ended->complete();
  EXPECT_TRUE(call.done(1)) << "here at once";
  world.run_for(milliseconds(5));
  SimCall next(world, world_group(world), all_reduce(10, 4));
  next.post_all();
  world.run_for(milliseconds(1));
  for (int rank = 0; rank < 4; ++rank) {
    for (const SimCall* each : {&call, &next}) {
      ASSERT_TRUE(each->done(rank)) << "rank " << rank << " hangs";
      EXPECT_EQ(each->failure(rank)->kind, ErrorKind::aborted) << each->failure(rank)->message;
      EXPECT_TRUE(contains(each->failure(rank)->message, "the loss is NaN")) << each->failure(rank)->message;
    }
  }
  world.settle();
  EXPECT_EQ(world.held_frames(), 0u);
}

TEST(Abort, leaves_other_groups_alone) {
  SimWorld world(3);
  world.open_group(2, "other", {0, 1, 2});
  SimCall aborted(world, world_group(world), all_reduce(400000, 3));
  SimCall other(world, {2, {0, 1, 2}}, all_reduce(400000, 3));
  aborted.post_all();
  other.post_all();
  world.run_for(milliseconds(1));
  world.engine(0).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
  ASSERT_TRUE(world.run(other.works()));
  EXPECT_EQ(other.verify(), "");
}

// ---- a group that is being made from a group that fails

struct Made {
  static constexpr std::uint64_t kId = 2;
  explicit Made(SimWorld& world, std::vector<int> members) : world(world), ranks(std::move(members)) {}
  Status open(int rank) const { return world.engine(rank).groups().open(kId, "made", ranks, kSimGroup); }

  SimWorld& world;
  std::vector<int> ranks;
};

TEST(MadeGroup, is_refused_with_the_failure_of_its_parent) {
  SimWorld world(3);
  world.engine(1).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
  world.run_for(milliseconds(5));
  const Made made(world, {0, 1});
  for (const int rank : {0, 1}) {
    const Status opened = made.open(rank);
    ASSERT_FALSE(opened.ok()) << "rank " << rank << " would wait for the others";
    EXPECT_EQ(opened.error().kind, ErrorKind::aborted);
    EXPECT_TRUE(contains(opened.error().message, "enough")) << opened.error().message;
  }
}

TEST(MadeGroup, fails_with_its_parent_while_members_may_not_have_opened_it) {
  SimWorld world(3);
  const Made made(world, {0, 1});
  world.open_group_on(0, 3, "unrelated", {0, 1});
  made.open(0).take_or_throw();
  SimCall call(world, {Made::kId, made.ranks}, all_reduce(100, 2));
  call.post(0);
  world.engine(1).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
  world.run_for(milliseconds(5));
  ASSERT_TRUE(call.done(0)) << "hangs until its deadline";
  EXPECT_EQ(call.failure(0)->kind, ErrorKind::aborted);
  EXPECT_TRUE(contains(call.failure(0)->message, "enough")) << call.failure(0)->message;
  EXPECT_FALSE(made.open(1).ok());
}

TEST(MadeGroup, outlives_its_parent_once_all_members_have_opened_it) {
  SimWorld world(3);
  const Made made(world, {0, 1});
  for (const int rank : {0, 1}) {
    made.open(rank).take_or_throw();
    world.engine(rank).groups().end_opening(Made::kId);
  }
  world.engine(1).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
  SimCall call(world, {Made::kId, made.ranks}, all_reduce(100, 2));
  call.post_all();
  ASSERT_TRUE(world.run(call.works()));
  EXPECT_EQ(call.verify(), "");
}

TEST(MadeGroup, of_the_ranks_that_are_left_does_not_fail_with_its_parent) {
  SimWorld world(3);
  const Made made(world, {0, 1});
  made.open(0).take_or_throw();
  SimCall call(world, {Made::kId, made.ranks}, all_reduce(100, 2));
  call.post(0);
  world.network().kill(2);
  world.run_for(milliseconds(5));
  made.open(1).take_or_throw();
  call.post(1);
  ASSERT_TRUE(world.run(call.works()));
  EXPECT_EQ(call.verify(), "");
}

TEST(Abort, does_not_touch_the_callers_memory_afterwards) {
  SimWorld world(3, {.slice_bytes = 8192});
  SimCall call(world, world_group(world), all_reduce(400000, 3));
  begin(world, call, milliseconds(1));
  world.engine(0).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
  const ByteVector then = call.result(0);
  world.run_for(milliseconds(50));
  EXPECT_EQ(call.result(0), then);
}

// A failed group returns the budget that its frames used: other groups must not run short of it.
TEST(FailedGroup, gives_back_the_eager_budget_of_what_was_sent_ahead) {
  SimWorld world(2);
  world.open_group(2, "other", {0, 1});
  std::deque<SimCall> ahead;
  for (int i = 0; i < 16; ++i) {
    ahead.emplace_back(world, world_group(world), all_reduce(16384, 2, {.algorithm = Algorithm::one_shot}));
    ahead.back().post(0);
  }
  world.run_for(milliseconds(50));
  EXPECT_GT(world.network().endpoint(1).held().frames, 0u) << "rank 1 keeps what came ahead";
  world.engine(0).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
  world.settle();
  EXPECT_EQ(world.held_frames(), 0u);
  SimCall other(world, {2, {0, 1}}, all_reduce(16384, 2, {.algorithm = Algorithm::one_shot}));
  other.post_all();
  ASSERT_TRUE(world.run(other.works()));
  EXPECT_TRUE(world.engine(0).frame_sender().eager().has_room(WorldRank(1), 512 * 1024))
      << "most of the budget is there again";
}

// Frames that arrive for a group that is closed here are dropped.
TEST(ClosedGroup, does_not_keep_late_frames) {
  SimWorld world(2);
  SimCall call(world, world_group(world), make_call(Collective::broadcast, 100, DataType::float32, 2, {.root = 0}));
  call.post(0);
  ASSERT_TRUE(world.run(call.works()));
  world.engine(0).groups().close(kSimGroup);
  call.post(1);  // its grant goes to the closed group
  world.engine(1).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
  world.settle();
  EXPECT_EQ(world.held_frames(), 0u);
}

// ---- damaged

// Flips a bit of one frame of the operation: an error on all ranks, or the right result if no rank
// needs the frame any more.
TEST(DamagedFrame, never_gives_a_wrong_result) {
  int failures = 0;
  for (int round = 0; round < 80; ++round) {
    SimWorld world(3, {.seed = static_cast<std::uint64_t>(round), .slice_bytes = 4096});
    Random random(static_cast<std::uint64_t>(round));
    int frames = 0;
    const int victim = static_cast<int>(random.below(60));
    world.network().set_tap([&](int, int, Bytes frame) {
      if (frames++ != victim) return;
      const std::size_t bit = random.below(frame.size() * 8);
      frame[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    });
    SimCall call(world, world_group(world), all_reduce(10000 + 1000 * random.below(2), 3));
    call.post_all();
    ASSERT_TRUE(world.run(call.works(), seconds(20)));
    bool failed = false;
    for (int rank = 0; rank < 3; ++rank) {
      if (!call.failure(rank)) continue;
      failed = true;
      EXPECT_EQ(call.failure(rank)->kind, ErrorKind::corrupt_data) << call.failure(rank)->message;
    }
    failures += failed ? 1 : 0;
    const std::string problem = failed ? "" : call.verify();
    EXPECT_EQ(problem, "") << "round " << round;
  }
  EXPECT_GT(failures, 40) << "the test meant to hit frames that matter";
}

}  // namespace
}  // namespace qccl::testing
