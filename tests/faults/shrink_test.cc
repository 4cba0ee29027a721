// Groups that go on: ranks are killed or stopped in the middle of a call, and the survivors shrink their group and
// finish the call in the new one.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "faults/job.h"

namespace qccl::testing {
namespace {

// Sums that are exact in any order, so that a result tells who took part.
void expect_sum_over(Communicator& comm, const std::vector<int>& world_ranks, std::size_t count = 1 << 20) {
  const auto bit = [](int rank) { return static_cast<float>(1 << rank); };
  float expected = 0;
  for (const int rank : world_ranks) expected += bit(rank);
  std::vector<float> values(count, bit(world_ranks[static_cast<std::size_t>(comm.rank())]));
  comm.all_reduce(values);
  EXPECT_EQ(values, std::vector<float>(count, expected));
}

double milliseconds_between(Time begin, Time end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

std::vector<double> sorted_since(const Report& report, Time fault, const std::string& point,
                                 std::initializer_list<std::size_t> ranks) {
  std::vector<double> times;
  for (const std::size_t rank : ranks) {
    times.push_back(milliseconds_between(fault, report.ranks[rank].points.at(point)));
  }
  std::ranges::sort(times);
  return times;
}

class Shrink : public Transports {};

// Asking must not keep the rank from hearing of its peers.
TEST_P(Shrink, a_rank_that_does_nothing_but_ask_learns_of_a_loss) {
  JobOptions options = job(3);
  options.faults = {{.rank = 2, .point = "begin", .after = Milliseconds(100)}};
  run_ranks(options, [](Rank& rank) {
    Communicator comm = rank.init();
    comm.barrier();
    rank.point("begin");
    constexpr auto kBetweenQuestions = std::chrono::milliseconds(5);
    const Time end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    const auto is_victim = [](const LostRank& lost) { return lost.rank == 2; };
    while (std::ranges::none_of(comm.failed(), is_victim)) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::sleep_for(kBetweenQuestions);
    }
  });
}

TEST_P(Shrink, survivors_of_a_kill_in_the_middle_of_a_sum_finish_it_among_themselves) {
  JobOptions options = job(4);
  options.faults = {{.rank = 2, .point = "summing", .after = Milliseconds(50)}};
  const Report report = run_ranks(options, [](Rank& rank) {
    Communicator comm = rank.init();
    const ErrorInfo failure = sum_until_failure(rank, comm);
    EXPECT_EQ(failure.peer, 2) << failure.message;
    Communicator rest = comm.shrink();
    rank.point("shrunk");
    EXPECT_EQ(rest.size(), 3);
    EXPECT_EQ(rest.rank(), rank.rank() < 2 ? rank.rank() : 2);
    expect_sum_over(rest, {0, 1, 3});
    rank.point("retried");
    std::vector<LostRank> lost = comm.failed();
    ASSERT_EQ(lost.size(), 1u);
    // Another rank may have seen the end of its connection first.
    const Time end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (lost[0].grade != LossGrade::gone && std::chrono::steady_clock::now() < end) lost = comm.failed();
    EXPECT_EQ(lost[0].rank, 2);
    EXPECT_EQ(lost[0].grade, LossGrade::gone) << lost[0].reason;
    EXPECT_TRUE(rest.failed().empty());
    expect_sum_over(rest, {0, 1, 3}, 10);
    rest.barrier();
  });
  ASSERT_TRUE(report.passed);
  const Time fault = report.ranks[2].fault.value();
  for (const char* const point : {"failed", "shrunk", "retried"}) {
    const auto times = sorted_since(report, fault, point, {0, 1, 3});
    std::puts(fmt::format("{:8} {:.1f} to {:.1f} ms after the kill", point, times.front(), times.back()).c_str());
  }
}

TEST_P(Shrink, goes_on_until_one_rank_is_left) {
  JobOptions options = job(4);
  options.faults = {{.rank = 0, .point = "first", .after = Milliseconds(10)},
                    {.rank = 1, .point = "second", .after = Milliseconds(10)},
                    {.rank = 2, .point = "third", .after = Milliseconds(10)}};
  run_ranks(options, [](Rank& rank) {
    Communicator comm = rank.init();
    std::vector<int> left{0, 1, 2, 3};
    for (const char* const round : {"first", "second", "third"}) {
      rank.point(round);
      failure_of(rank, [&] {
        while (true) expect_sum_over(comm, left);
      });
      Communicator rest = comm.shrink();
      comm.close();
      comm = rest;
      left.erase(left.begin());
    }
    EXPECT_EQ(comm.size(), 1);
    expect_sum_over(comm, left);
    comm.close();
  });
}

TEST_P(Shrink, two_ranks_that_die_at_once_are_both_left_out) {
  JobOptions options = job(5);
  options.faults = {{.rank = 0, .point = "summing"}, {.rank = 3, .point = "failed"}};
  run_ranks(options, [](Rank& rank) {
    Communicator comm = rank.init();
    sum_until_failure(rank, comm);
    while (comm.size() > 3) comm = comm.shrink();
    while (true) {
      try {
        expect_sum_over(comm, {1, 2, 4});
        return comm.close();
      } catch (const Error&) {
        comm = comm.shrink();
      }
    }
  });
}

// The stopped rank resumes after the others have gone on.
TEST_P(Shrink, a_stopped_rank_is_left_out_and_told_by_whom) {
  JobOptions options = job(3);
  options.faults = {{.action = Fault::Action::stop, .rank = 1, .point = "summing", .lasting = Milliseconds(5'000)}};
  run_ranks(options, [](Rank& rank) {
    Communicator comm = rank.init();
    comm.set_timeout(Milliseconds(1'000));
    sum_until_failure(rank, comm);
    const auto shrink = [&] { return comm.shrink({.patience = Milliseconds(1'500), .timeout = Milliseconds(20'000)}); };
    if (rank.rank() != 1) {
      Communicator rest = shrink();
      expect_sum_over(rest, {0, 2});
      const std::vector<LostRank> lost = comm.failed();  // the third rank too if it has ended already
      const auto stopped = std::ranges::find(lost, 1, &LostRank::rank);
      ASSERT_NE(stopped, lost.end());
      EXPECT_EQ(stopped->grade, LossGrade::silent) << stopped->reason;
      return rest.close();
    }
    try {
      shrink();
      ADD_FAILURE() << "it was left out";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::aborted) << error.what();
      EXPECT_TRUE(contains(error.what(), "ranks 0, 2 went on without this rank")) << error.what();
    }
    std::vector<float> value(1);
    EXPECT_TRUE(contains(failure_of(rank, [&] { comm.all_reduce(value); }).message, "ranks 0, 2 went on"));
  });
}

TEST_P(Shrink, leaves_out_ranks_on_purpose_without_a_failure) {
  run_ranks(job(4), [](Rank& rank) {
    Communicator comm = rank.init();
    expect_sum_over(comm, {0, 1, 2, 3});
    if (rank.rank() == 0 || rank.rank() == 3) {
      std::vector<float> value(1);
      const ErrorInfo failure = failure_of(rank, [&] { comm.all_reduce(value); });
      EXPECT_TRUE(contains(failure.message, "ranks 1, 2 went on without this rank")) << failure.message;
      return;
    }
    Communicator rest = comm.shrink({.without = {0, 3}});
    expect_sum_over(rest, {1, 2});
    rest.close();
  });
}

TEST_P(Shrink, refuses_a_wrong_list) {
  run_ranks(job(2), [](Rank& rank) {
    Communicator comm = rank.init();
    const auto kind_of = [&](const std::vector<int>& without) {
      try {
        comm.shrink({.without = without});
      } catch (const Error& error) {
        return error.kind();
      }
      return ErrorKind::unsupported;
    };
    EXPECT_EQ(kind_of({2}), ErrorKind::invalid_argument);
    EXPECT_EQ(kind_of({-1}), ErrorKind::invalid_argument);
    EXPECT_EQ(kind_of({rank.rank()}), ErrorKind::invalid_argument);
    EXPECT_EQ(kind_of({1 - rank.rank(), 1 - rank.rank()}), ErrorKind::invalid_argument);
    expect_sum_over(comm, {0, 1});
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Shrink, both_transports(), transport_name);

}  // namespace
}  // namespace qccl::testing
