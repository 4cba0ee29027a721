// Runs a program as the ranks of one job on this host and ends the job as a whole.
//
// Two processes take part. The keeper, which the user sees, only passes signals on and waits. Its child, the
// supervisor, starts and watches the ranks. Both adopt orphans and each notices when the other dies, so that killing
// either with SIGKILL leaves no process behind.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/run/process/rank_process.h"

namespace qccl::tools {

struct LaunchOptions {
  std::string program = "qccl run";  // begins the launcher's messages
  int ranks = 1;
  std::vector<std::string> command{};
  Variables variables{};  // for every rank, besides the launcher's own
  bool bind_to_cores = false;
  bool tag_output = false;
  std::string log_folder{};               // empty: no logs
  std::chrono::milliseconds timeout{0};   // of the whole job; 0: none
  std::chrono::milliseconds grace{5000};  // between SIGTERM and SIGKILL
};

// Blocks until the job and all its processes have ended. Returns the exit code: the first failed rank's (128 + n if
// signal n ended it), 124 after the timeout, 126 or 127 if the program can't be started, 1 if the system refused.
// Call it once, in a process without threads.
int launch(const LaunchOptions& options);

// ---- The start parameters of each rank: torchrun's variables, a share of the cores, its input and output

// The logical CPUs that this process may use; the hardware threads of one core are adjacent.
std::vector<int> usable_cores();
// A rank's equal share of `cores`. With fewer cores than ranks, one core that several ranks share.
std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world);

// Unsets the variables with which an outer launcher started this process, so that no rank takes them for its own.
void forget_outer_launcher();

// True if these variables or the launcher's own environment have the name.
bool is_set(const Variables& variables, const char* name);

// One specification for each rank. Rank 0's listener takes `master_port`.
std::vector<RankSpec> rank_specs(const LaunchOptions& options, int master_port);

}  // namespace qccl::tools
