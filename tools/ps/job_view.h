// The views of `qccl ps --job` and `qccl top`: whole jobs, as one of their ranks on this host collects them.
#pragma once

#include <qccl/status.h>

#include <chrono>
#include <string>
#include <vector>

namespace qccl::tools {

// Whole jobs, looked at twice: rates are what came between.
struct JobsSeen {
  std::vector<JobStatus> jobs;
  std::vector<JobStatus> before;
};

// Looks twice, `interval` apart. `patience`: with ranks that do not answer.
JobsSeen look_at_jobs(std::chrono::milliseconds patience, std::chrono::milliseconds interval);
// The next look after `seen`.
JobsSeen look_again(JobsSeen seen, std::chrono::milliseconds patience);

// For each job its headline and a table with a line for each rank.
std::string table_of(const JobsSeen& seen);

// Prints the stack of the rank of each job that holds others up, by py-spy, or to standard error why there is none.
// False if there is none of any job.
bool print_stacks(const std::vector<JobStatus>& jobs);

}  // namespace qccl::tools
