// Runs a program as the local ranks of one job and ends the job as a whole.
//
// Two processes take part. The one the user sees (the keeper) only passes signals on and waits;
// its child (see job.h) starts and watches the ranks. Both adopt orphans and each notices when
// the other dies, so that killing either with SIGKILL still leaves no process behind.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "rank_process.h"

namespace qccl::tools {

struct LaunchOptions {
  std::string program = "qccl run";  // begins the launcher's own messages
  int ranks = 1;
  bool tag_output = false;
  std::chrono::milliseconds timeout{0};   // of the whole job; 0: none
  std::chrono::milliseconds grace{5000};  // between SIGTERM and SIGKILL
  Variables variables;                    // for every rank
};

// Exit codes of the launcher itself; otherwise it is the first failed rank's.
inline constexpr int kExitTimeout = 124;
inline constexpr int kExitSignalBase = 128;

// Blocks until the job and all its processes have ended; returns the exit code. Call it once, in
// a process without threads.
int launch(const LaunchOptions& options, const std::vector<std::string>& command);

}  // namespace qccl::tools
