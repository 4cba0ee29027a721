// qccl::testing in tests that pass; intended_failures.cc has its reports of failures.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>

#include "qccl/testing.h"

namespace qccl::testing {
namespace {

class Started : public ::testing::TestWithParam<std::tuple<Start, int>> {
 protected:
  JobOptions job() const { return {.world = std::get<1>(GetParam()), .start = std::get<0>(GetParam())}; }
};

TEST_P(Started, every_rank_is_a_process_and_they_meet) {
  const Report report = run_ranks(job(), [test = ::getpid()](Rank& rank) {
    Communicator comm = rank.init();
    ASSERT_EQ(comm.size(), rank.world());
    std::vector<int> own{::getpid()};
    std::vector<int> all(static_cast<std::size_t>(rank.world()));
    comm.all_gather(own, all);
    std::set<int> processes(all.begin(), all.end());
    processes.insert(test);
    EXPECT_GE(processes.size(), all.size());
    std::vector<int> sum{rank.rank()};
    comm.all_reduce(sum);
    EXPECT_EQ(sum[0], rank.world() * (rank.world() - 1) / 2);
  });
  EXPECT_TRUE(report.passed);
  ASSERT_EQ(std::ssize(report.ranks), job().world);
  for (const RankReport& rank : report.ranks) EXPECT_EQ(rank.end, exited(0));
}

TEST_P(Started, second_job_of_a_test_is_another_one) {
  const Report first = run_ranks(job(), [](Rank&) { std::puts("first"); });
  const Report second = run_ranks(job(), [](Rank&) { std::fputs("second", stderr); });
  if (std::getenv("RANK") != nullptr) return;  // a spawned rank also gets here
  for (const RankReport& rank : first.ranks) EXPECT_NE(rank.output.find("first"), std::string::npos);
  for (const RankReport& rank : second.ranks) EXPECT_NE(rank.output.find("second"), std::string::npos);
}

TEST_P(Started, rank_has_its_variables) {
  JobOptions options = job();
  options.environment = {{"CHEESE", "Edam"}};
  run_ranks(options, [](Rank& rank) {
    EXPECT_STREQ(std::getenv("CHEESE"), "Edam");
    EXPECT_EQ(std::getenv("RANK"), std::to_string(rank.rank()));
    EXPECT_EQ(std::getenv("WORLD_SIZE"), std::to_string(rank.world()));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Started,
                         ::testing::Combine(::testing::Values(Start::fork, Start::spawn), ::testing::Values(1, 2, 5)),
                         [](const auto& info) {
                           const char* start = std::get<0>(info.param) == Start::fork ? "fork" : "spawn";
                           return start + std::to_string(std::get<1>(info.param));
                         });

TEST(RunRanks, foretold_ends_are_right) {
  const Report report = run_ranks({.world = 3, .ends = {{0, exited(7)}, {1, killed(SIGABRT)}}}, [](Rank& rank) {
    if (rank.rank() == 0) std::_Exit(7);
    if (rank.rank() == 1) std::abort();
  });
  EXPECT_TRUE(report.passed);
}

TEST(RunRanks, points_are_in_the_report_with_their_times) {
  const Time before = std::chrono::steady_clock::now();
  const Report report = run_ranks({}, [](Rank& rank) {
    rank.point("first");
    rank.point("second");
  });
  for (const RankReport& rank : report.ranks) {
    ASSERT_EQ(rank.points.size(), 2u);
    EXPECT_LE(before, rank.points.at("first"));
    EXPECT_LE(rank.points.at("first"), rank.points.at("second"));
    EXPECT_LE(rank.points.at("second"), std::chrono::steady_clock::now());
  }
}

TEST(RunRanks, much_output_is_cut_and_blocks_nobody) {
  const Report report = run_ranks({}, [](Rank&) {
    for (int i = 0; i < 100'000; ++i) std::puts("all work and no play makes Jack a dull boy");
  });
  EXPECT_TRUE(report.passed);
  EXPECT_EQ(report.ranks[0].output.size(), 1u << 20);
}

TEST(RunRanks, options_that_make_no_sense_are_refused) {
  const auto nothing = [](Rank&) {};
  EXPECT_THROW(run_ranks({.world = 0}, nothing), std::invalid_argument);
  EXPECT_THROW(run_ranks({.faults = {{.rank = 2, .point = "x"}}}, nothing), std::invalid_argument);
  EXPECT_THROW(run_ranks({.faults = {{.rank = 1}}}, nothing), std::invalid_argument);
  EXPECT_THROW(run_ranks({.ends = {{-1, exited(0)}}}, nothing), std::invalid_argument);
}

TEST(RunRanks, skip_codes_differ_and_are_no_other_codes) {
  std::set<int> codes{0, kFailedExitCode};
  for (const SkipCode& code : skip_codes()) codes.insert(static_cast<int>(code.skip));
  EXPECT_EQ(codes.size(), skip_codes().size() + 2);
}

// ---- faults

// Makes sums until one fails. Checks the error and brings the rank to the point "failed".
void sum_until_it_fails(Rank& rank, Communicator& comm, ErrorKind kind, int peer) {
  std::vector<float> values(1 << 18, 1.0f);
  try {
    comm.all_reduce(values);
    rank.point("summing");
    while (true) comm.all_reduce(values);
  } catch (const Error& error) {
    rank.point("failed");
    EXPECT_EQ(error.kind(), kind) << error.what();
    if (peer >= 0) {
      EXPECT_EQ(error.info().peer, peer) << error.what();
    }
  }
}

double seconds_from_fault_to_failure(const Report& report, std::size_t victim, std::size_t rank) {
  return std::chrono::duration<double>(report.ranks[rank].points.at("failed") - report.ranks[victim].fault.value())
      .count();
}

TEST(RunRanks, killed_at_a_point) {
  const Report report = run_ranks({.world = 3, .faults = {{.rank = 1, .point = "summing"}}}, [](Rank& rank) {
    Communicator comm = rank.init();
    sum_until_it_fails(rank, comm, ErrorKind::peer_lost, 1);
    EXPECT_NE(rank.rank(), 1) << "outlived its kill";
  });
  ASSERT_TRUE(report.passed);
  EXPECT_EQ(report.ranks[1].end, killed(SIGKILL));
  EXPECT_GT(seconds_from_fault_to_failure(report, 1, 0), 0);
}

TEST(RunRanks, killed_a_while_after_a_point) {
  const Milliseconds while_after{50};
  const Report report = run_ranks({.faults = {{.rank = 1, .point = "summing", .after = while_after}}}, [](Rank& rank) {
    Communicator comm = rank.init();
    sum_until_it_fails(rank, comm, ErrorKind::peer_lost, 1);
  });
  ASSERT_TRUE(report.passed);
  EXPECT_GE(report.ranks[1].fault.value() - report.ranks[1].points.at("summing"), while_after);
}

TEST(RunRanks, stopped_rank_goes_on_when_the_others_have_ended) {
  JobOptions options{.deadline = Milliseconds(20'000)};
  options.faults = {{.action = Fault::Action::stop, .rank = 0, .point = "summing"}};
  const Report report = run_ranks(options, [](Rank& rank) {
    Communicator comm = rank.init();
    std::vector<float> values(1 << 18, 1.0f);
    comm.all_reduce(values);
    rank.point("summing");
    try {
      while (true) comm.all_reduce(values, {.timeout = Milliseconds(500)});
    } catch (const Error& error) {
      rank.point("failed");
      if (rank.rank() == 1) {
        EXPECT_EQ(error.kind(), ErrorKind::deadline_exceeded) << error.what();
      }
    }
  });
  ASSERT_TRUE(report.passed);
  EXPECT_GT(report.ranks[0].points.at("failed"), report.ranks[1].points.at("failed"));
}

TEST(RunRanks, stopped_for_a_while_and_nobody_fails) {
  const Milliseconds lasting{300};
  const Fault stop{.action = Fault::Action::stop, .rank = 0, .point = "met", .lasting = lasting};
  const Report report = run_ranks({.faults = {stop}}, [](Rank& rank) {
    Communicator comm = rank.init();
    comm.barrier();
    rank.point("met");
    comm.barrier();
    rank.point("met again");
  });
  ASSERT_TRUE(report.passed);
  EXPECT_GE(report.ranks[1].points.at("met again") - report.ranks[0].fault.value(), lasting);
}

TEST(RunRanks, cut_rank_loses_all_others) {
  const Fault cut{.action = Fault::Action::cut, .rank = 2, .point = "summing"};
  const Report report = run_ranks({.world = 3, .transport = TransportChoice::tcp, .faults = {cut}}, [](Rank& rank) {
    Communicator comm = rank.init();
    sum_until_it_fails(rank, comm, ErrorKind::peer_lost, -1);
  });
  ASSERT_TRUE(report.passed);
  EXPECT_TRUE(report.ranks[2].fault.has_value());
}

}  // namespace
}  // namespace qccl::testing
