// The line at the end of a job: what it says, when, and that it comes once.
#include "job/status/job_totals.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace qccl::comm {
namespace {

RankStatus ended(std::uint64_t calls) {
  RankStatus status;
  status.world = 4;
  status.seconds = 10;
  status.busy_seconds = 2.5;
  status.sent_bytes = 3 << 20;
  status.saved_bytes = 21 << 20;
  if (calls > 0) {
    status.counters = {{.group = "world", .operation = "all_reduce", .calls = calls, .bytes = calls << 20}};
  }
  return status;
}

class JobTotalsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(std::getenv("QCCL_LOG"), nullptr) << "the tests are about its default"; }

  // What is printed when all of `jobs` end, which were open at the same time.
  static std::string printed(const std::vector<RankStatus>& jobs, bool is_first = true) {
    ::testing::internal::CaptureStderr();
    std::vector<std::shared_ptr<JobTotals>> open;
    for (std::size_t i = 0; i < jobs.size(); ++i) open.push_back(JobTotals::of(0));
    for (std::size_t i = 0; i < jobs.size(); ++i) open[i]->add(jobs[i], is_first);
    open.clear();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(JobTotalsTest, one_job_has_one_line) {
  EXPECT_EQ(printed({ended(12)}),
            "qccl: info: rank 0 of 4: 12 calls of 12.0 MB, sent 3.0 MB, saved 21.0 MB by compression; in calls 25.0 % "
            "of 10.0 s; no warnings\n");
}

TEST_F(JobTotalsTest, a_job_and_what_it_has_grown_to_have_one_line_with_the_sums) {
  EXPECT_EQ(printed({ended(12), ended(1)}),
            "qccl: info: rank 0 of 4: 13 calls of 13.0 MB, sent 6.0 MB, saved 42.0 MB by compression; in calls 50.0 % "
            "of 10.0 s; no warnings\n");
}

TEST_F(JobTotalsTest, jobs_one_after_another_have_a_line_each) {
  EXPECT_NE(printed({ended(1)}).find("1 call of 1.0 MB"), std::string::npos);
  EXPECT_NE(printed({ended(1)}).find("1 call of 1.0 MB"), std::string::npos);
}

TEST_F(JobTotalsTest, other_ranks_and_jobs_that_did_nothing_are_silent) {
  EXPECT_EQ(printed({ended(12)}, false), "");
  EXPECT_EQ(printed({ended(0)}), "");
  EXPECT_NE(JobTotals::of(0), JobTotals::of(1));
}

TEST(EndOfJobLine, names_the_slowest_line_and_the_first_warning) {
  RankStatus totals = ended(1);
  totals.lines = {{.peer = 1, .acknowledged_bytes = 1000, .busy_seconds = 1},  // too little to tell
                  {.peer = 3, .acknowledged_bytes = 125 << 20, .busy_seconds = 1},
                  {.peer = 2, .acknowledged_bytes = 1250 << 20, .busy_seconds = 1}};
  totals.warnings = {"group 'world' failed: rank 2 was lost", "another"};
  const std::string line = end_of_job_line(totals);
  EXPECT_NE(line.find("; slowest line 1.05 Gbit/s, to rank 3; warning: group 'world' failed: rank 2 was lost (and 1 "
                      "more)"),
            std::string::npos)
      << line;
}

}  // namespace
}  // namespace qccl::comm
