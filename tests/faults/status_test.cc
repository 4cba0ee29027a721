// A job of many processes, one of which hangs outside the library, as `qccl ps --job` sees it.
#include "qccl/status.h"

#include <chrono>

#include "faults/job.h"

namespace qccl::testing {
namespace {

constexpr int kWorld = 64;
constexpr int kHung = 7;

// The job of this rank, whole. Other jobs may run on the machine.
JobStatus own_job(const std::string& job) {
  std::vector<RankStatus> local = ranks_on_this_host(Milliseconds(500));
  std::erase_if(local, [&](const RankStatus& rank) { return rank.job != job; });
  std::vector<JobStatus> jobs = whole_jobs(local, Milliseconds(500));
  return jobs.empty() ? JobStatus() : jobs.front();
}

bool names_the_hung_rank(const HoldUp& found) {
  return found.rank == kHung && found.waiting.size() == kWorld - 1 &&
         contains(found.text, "63 ranks wait for rank 7 on ") &&
         contains(found.text, "which has not called all_reduce #");
}

// From its program's code, rank 7 looks from outside: the library sees a thread that is elsewhere.
TEST(JobStatus, of_64_ranks_names_the_one_that_hangs_within_two_seconds) {
  run_ranks({.world = kWorld, .deadline = Milliseconds(120'000)}, [](Rank& rank) {
    Communicator comm = rank.init();
    std::vector<float> values(100'000, 1.0F);
    comm.all_reduce(values);
    if (rank.rank() == kHung) {
      const std::string job = comm.status().job;
      const auto begin = std::chrono::steady_clock::now();
      HoldUp found;
      while (!names_the_hung_rank(found) && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
        found = find_hold_up(own_job(job).ranks);
      }
      EXPECT_TRUE(names_the_hung_rank(found)) << found.text;
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2)) << "with 63 others starting to wait";
    }
    comm.all_reduce(values);
  });
}

TEST(JobStatus, says_of_a_stopped_rank_that_it_does_not_answer_and_since_when) {
  const Fault stop{.action = Fault::Action::stop, .rank = 2, .point = "stop"};
  run_ranks({.world = 3, .faults = {stop}}, [](Rank& rank) {
    Communicator comm = rank.init();
    comm.barrier();
    rank.point("stop");
    std::vector<int> done(1);
    if (rank.rank() == 1) {
      comm.recv(done, 0);
    } else if (rank.rank() == 0) {
      std::vector<RankStatus> ranks;
      do {
        ranks = comm.job_status(Milliseconds(300));
      } while (ranks[2].answered);
      EXPECT_EQ(ranks.size(), 3u);
      EXPECT_TRUE(ranks[0].answered);
      EXPECT_TRUE(ranks[1].answered);
      EXPECT_TRUE(contains(ranks[2].absence, "does not answer; it was last heard of ")) << ranks[2].absence;
      comm.send(done, 1);
    }
  });
}

}  // namespace
}  // namespace qccl::testing
