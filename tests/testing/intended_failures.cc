// Tests that are meant to fail, each in one of the ways that qccl::testing must report. They are not among the
// project's tests: test_intended_failures.py runs them one by one and checks their output.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "qccl/testing.h"

namespace qccl::testing {
namespace {

constexpr Milliseconds kDeadline{4'000};  // long enough for all ranks but one to reach the place that the report shows
constexpr Milliseconds kGrace{1'500};

// A frame that the test finds in a stack.
[[gnu::noinline]] void stay_here_for_ever() {
  while (true) ::pause();
}

class Started : public ::testing::TestWithParam<Start> {
 protected:
  JobOptions job(int world) const { return {.world = world, .start = GetParam()}; }
};

TEST_P(Started, assertion_fails_in_rank_1) {
  run_ranks(job(3), [](Rank& rank) {
    std::printf("here speaks rank %d\n", rank.rank());
    if (rank.rank() != 1) return;
    EXPECT_EQ(rank.rank(), 5) << "two and two";
    ASSERT_TRUE(false) << "fatal";
    ADD_FAILURE() << "never reached";
  });
  std::printf("the test goes on\n");
}

TEST_P(Started, exception_leaves_rank_0) {
  run_ranks(job(2), [](Rank& rank) {
    if (rank.rank() == 0) throw std::runtime_error("no such cheese");
  });
}

TEST_P(Started, rank_1_aborts) {
  run_ranks(job(2), [](Rank& rank) {
    if (rank.rank() == 1) std::abort();
  });
}

TEST_P(Started, rank_0_hangs) {
  JobOptions options = job(2);
  options.deadline = kDeadline;
  run_ranks(options, [](Rank& rank) {
    rank.point("before");
    if (rank.rank() == 0) stay_here_for_ever();
  });
}

TEST_P(Started, rank_2_exits_with_3) {
  run_ranks(job(3), [](Rank& rank) {
    if (rank.rank() == 2) std::_Exit(3);
  });
}

TEST_P(Started, rank_1_exits_with_0_too_early) {
  run_ranks(job(2), [](Rank& rank) {
    if (rank.rank() == 1) std::_Exit(0);
  });
}

TEST_P(Started, all_ranks_skip) {
  run_ranks(job(2), [](Rank& rank) {
    rank.need_world(8);
    ADD_FAILURE() << "never reached";
  });
}

TEST_P(Started, rank_0_alone_skips) {
  JobOptions options = job(2);
  options.grace = kGrace;
  run_ranks(options, [](Rank& rank) {
    if (rank.rank() == 0) rank.skip(Skip::not_root, "needs root");
  });
}

INSTANTIATE_TEST_SUITE_P(Intended, Started, ::testing::Values(Start::fork, Start::spawn),
                         [](const auto& info) { return info.param == Start::fork ? "fork" : "spawn"; });

TEST(Intended, rank_1_hangs_in_a_collective) {
  run_ranks({.deadline = kDeadline}, [](Rank& rank) {
    InitOptions options = rank.options();
    options.timeout = Milliseconds(300'000);
    Communicator comm = rank.init(options);
    std::vector<float> values(1000);
    if (rank.rank() == 1) comm.all_reduce(values);
    if (rank.rank() == 0) stay_here_for_ever();
  });
}

TEST(Intended, rank_1_hangs_after_rank_0_has_failed) {
  run_ranks({.grace = kGrace}, [](Rank& rank) {
    if (rank.rank() == 1) stay_here_for_ever();
    FAIL() << "at once";
  });
}

TEST(Intended, rank_1_is_stopped_by_somebody) {
  run_ranks({.deadline = kDeadline}, [](Rank& rank) {
    if (rank.rank() == 1) ::raise(SIGSTOP);
  });
}

TEST(Intended, fault_never_happens) {
  run_ranks({.faults = {{.rank = 1, .point = "nowhere"}}}, [](Rank& rank) { rank.point("somewhere"); });
}

TEST(Intended, cut_finds_no_connection) {
  run_ranks({.faults = {{.action = Fault::Action::cut, .rank = 1, .point = "here"}}},
            [](Rank& rank) { rank.point("here"); });
}

TEST(Intended, error_of_the_library_leaves_rank_0) {
  run_ranks({}, [](Rank& rank) {
    Communicator comm = rank.init();
    std::vector<float> values(4);
    if (rank.rank() == 0) comm.broadcast(values, {.root = 7});
  });
}

TEST(Intended, second_job_of_a_spawned_test_fails) {
  run_ranks({.start = Start::spawn}, [](Rank&) {});
  run_ranks({.start = Start::spawn}, [](Rank& rank) { EXPECT_NE(rank.rank(), 1) << "second job"; });
}

TEST(Intended, all_ranks_skip_by_googletest) {
  run_ranks({}, [](Rank&) { GTEST_SKIP() << "it is a Sunday"; });
}

TEST(Intended, a_spawned_rank_never_comes_to_its_job) {
  if (std::getenv("RANK") != nullptr) return;
  run_ranks({.start = Start::spawn}, [](Rank&) {});
}

TEST(Intended, rank_1_prints_and_never_stops) {
  run_ranks({.deadline = kDeadline}, [](Rank& rank) {
    while (rank.rank() == 1) std::printf("all work and no play\n");
  });
}

// Not a failure: processes that a rank has started and left running. They must end with the test, or when it is killed.
void fork_a_sleeper() {
  if (::fork() == 0) stay_here_for_ever();
}

TEST(Intended, ranks_leave_children_behind) {
  run_ranks({}, [](Rank&) { fork_a_sleeper(); });
}

TEST(Intended, test_is_killed_while_ranks_run) {
  run_ranks({.faults = {{.action = Fault::Action::stop, .rank = 1, .point = "forked"}}}, [](Rank& rank) {
    fork_a_sleeper();
    rank.point("forked");
    stay_here_for_ever();
  });
}

}  // namespace
}  // namespace qccl::testing
