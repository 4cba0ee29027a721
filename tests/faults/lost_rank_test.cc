// Ranks that die, stop, are cut off or leave while their peers wait for them.
#include <unistd.h>

#include <fstream>

#include "faults/job.h"

namespace qccl::testing {
namespace {

// Whether this process maps files of /dev/shm, which would outlive it if it were killed.
bool maps_named_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (contains(line, " /dev/shm/")) return true;
  }
  return false;
}

// Forks a child that sleeps and keeps everything it inherited open.
void fork_a_sleeper() {
  if (::fork() != 0) return;
  while (true) ::pause();
}

class LostRank : public Transports {
 protected:
  // Kills the third of four ranks; the others must learn of it at once.
  void expect_prompt_failures(const Fault& kill, const std::function<void(Rank&, Communicator&)>& calls) {
    JobOptions options = job(4);
    options.faults = {kill};
    expect_within_a_second([&] {
      const Report report = run_ranks(options, [&](Rank& rank) {
        Communicator comm = rank.init();
        calls(rank, comm);
      });
      return report.passed ? slowest_failure(report, {0, 1, 3}, report.ranks[2].fault.value()) : 0;
    });
  }

  static void expect_loss_of_rank_2(const ErrorInfo& failure) {
    EXPECT_EQ(failure.kind, ErrorKind::peer_lost) << failure.message;
    EXPECT_EQ(failure.peer, 2) << failure.message;
    EXPECT_TRUE(contains(failure.message, "rank 2")) << failure.message;
  }
};

const Fault kKillAtPoint{.rank = 2, .point = "summing"};
const Fault kKillInTheMiddle{.rank = 2, .point = "summing", .after = Milliseconds(50)};

TEST_P(LostRank, killed_while_others_wait_for_it_fails_them_within_a_second) {
  expect_prompt_failures(kKillAtPoint, [](Rank& rank, Communicator& comm) {
    std::vector<char> waiting(1);
    for (const int other : {0, 1, 3}) {
      if (rank.rank() == 2) comm.recv(waiting, other);
    }
    if (rank.rank() == 2) rank.point("summing");
    std::vector<float> values(1 << 20, 1.0f);
    const Work sum = comm.all_reduce_async(values);
    const ErrorInfo failure = failure_of(rank, [&] {
      comm.send(waiting, 2);
      sum.wait();
    });
    expect_loss_of_rank_2(failure);
    EXPECT_TRUE(contains(failure.message, "all_reduce")) << failure.message;
  });
}

TEST_P(LostRank, killed_in_the_middle_fails_every_other_rank_within_a_second) {
  expect_prompt_failures(kKillInTheMiddle, [](Rank& rank, Communicator& comm) {
    expect_loss_of_rank_2(sum_until_failure(rank, comm));
    EXPECT_FALSE(maps_named_memory());
  });
}

TEST_P(LostRank, killed_while_a_forked_child_lives_fails_every_other_rank_within_a_second) {
  expect_prompt_failures(kKillInTheMiddle, [](Rank& rank, Communicator& comm) {
    fork_a_sleeper();
    expect_loss_of_rank_2(sum_until_failure(rank, comm));
  });
}

TEST_P(LostRank, stopped_fails_the_others_at_the_deadline_that_was_set) {
  constexpr Milliseconds kTimeout{1'500};
  JobOptions options = job(3);
  options.faults = {{.action = Fault::Action::stop, .rank = 1, .point = "summing"}};
  const Report report = run_ranks(options, [&](Rank& rank) {
    Communicator comm = rank.init();
    std::vector<float> values(1 << 20, 1.0f);
    comm.all_reduce(values);
    rank.point("summing");
    Time posted{};
    const ErrorInfo failure = failure_of(rank, [&] {
      while (true) {
        posted = std::chrono::steady_clock::now();
        comm.all_reduce(values, {.timeout = kTimeout});
      }
    });
    if (rank.rank() == 1) return;  // it continues alone and may learn of the failure in any way
    EXPECT_EQ(failure.kind, ErrorKind::deadline_exceeded) << failure.message;
    EXPECT_EQ(failure.peer, 1) << failure.message;
    EXPECT_TRUE(contains(failure.message, "rank 1") && contains(failure.message, "bytes")) << failure.message;
    // The rank that posted later learns of it from the other one.
    if (contains(failure.message, "reports")) return;
    EXPECT_GE(std::chrono::steady_clock::now() - posted, kTimeout) << failure.message;
  });
  ASSERT_TRUE(report.passed);
  // Long before the deadline of other calls.
  EXPECT_LT(slowest_failure(report, {0, 2}, report.ranks[1].fault.value()), 10.0);
}

// It is stopped for longer than its peer waits. When it resumes, it must not wait for the peer that gave it up.
TEST_P(LostRank, stopped_for_too_long_learns_who_gave_it_up_when_it_goes_on) {
  JobOptions options = job(2);
  options.environment = {{"QCCL_PEER_TIMEOUT", "1"}};
  options.faults = {{.action = Fault::Action::stop, .rank = 1, .point = "summing", .lasting = Milliseconds(3'000)}};
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  run_ranks(options, [&](Rank& rank) {
    Communicator comm = rank.init();
    const ErrorInfo failure = sum_until_failure(rank, comm);
    EXPECT_EQ(failure.kind, ErrorKind::peer_lost) << failure.message;
    EXPECT_EQ(failure.peer, 1 - rank.rank()) << failure.message;
    EXPECT_TRUE(contains(failure.message, "was lost: silent for 1")) << failure.message;
    EXPECT_EQ(contains(failure.message, "rank 0 gave this rank up"), rank.rank() == 1) << failure.message;
    // Rank 0 stays until rank 1 has failed: its exit would be another reason to fail.
    char done = 0;
    EXPECT_EQ(rank.rank() == 0 ? ::read(ends[0], &done, 1) : ::write(ends[1], &done, 1), 1);
  });
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_P(LostRank, cut_off_fails_every_rank_within_a_second_itself_too) {
  JobOptions options = job(3);
  options.faults = {{.action = Fault::Action::cut, .rank = 1, .point = "summing", .after = Milliseconds(30)}};
  expect_within_a_second([&] {
    const Report report = run_ranks(options, [](Rank& rank) {
      Communicator comm = rank.init();
      const ErrorInfo failure = sum_until_failure(rank, comm);
      EXPECT_EQ(failure.kind, ErrorKind::peer_lost) << failure.message;
      // Not all ranks can know which rank is to blame: rank 1's report of the first rank it misses may still arrive.
      EXPECT_TRUE(contains(failure.message, "rank 1")) << failure.message;
    });
    return report.passed ? slowest_failure(report, {0, 1, 2}, report.ranks[1].fault.value()) : 0;
  });
}

// Small calls end on the spot and look at nothing else; heartbeats must go out all the same.
TEST_P(LostRank, that_only_makes_small_calls_is_not_given_up_for_silent) {
  JobOptions options = job(2);
  options.environment = {{"QCCL_PEER_TIMEOUT", "1"}};
  run_ranks(options, [](Rank& rank) {
    Communicator comm = rank.init();
    if (rank.rank() == 0) {
      Communicator alone = comm.subgroup({0}, "alone");
      const auto end = std::chrono::steady_clock::now() + Milliseconds(2'500);
      std::vector<float> value(1, 1.0f);
      while (std::chrono::steady_clock::now() < end) alone.all_reduce(value);
    }
    std::vector<float> values(100, 1.0f);
    comm.all_reduce(values);
    EXPECT_EQ(values, std::vector<float>(100, 2.0f));
  });
}

TEST_P(LostRank, that_leaves_early_is_named) {
  run_ranks(job(3), [](Rank& rank) {
    Communicator comm = rank.init();
    std::vector<float> values(1 << 20, 1.0f);
    if (rank.rank() == 0) {
      comm.all_reduce(values);
      return comm.close();
    }
    const ErrorInfo failure = sum_until_failure(rank, comm);
    EXPECT_EQ(failure.kind, ErrorKind::peer_lost) << failure.message;
    EXPECT_TRUE(contains(failure.message, "rank 0")) << failure.message;
  });
}

INSTANTIATE_TEST_SUITE_P(Over, LostRank, both_transports(), transport_name);

}  // namespace
}  // namespace qccl::testing
