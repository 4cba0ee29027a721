// Runs a program as the ranks of one job, on this host or on several, and ends the job as a whole.
//
// On each host two processes take part. The one the user sees, or that ssh started (the keeper), only passes signals
// on and waits; its child, a Supervisor, starts and watches the ranks. Both adopt orphans and each notices when the
// other dies, so that killing either with SIGKILL still leaves no process behind. Of a job on several hosts the child
// (hosts_job.h) starts an agent (agent.h) on each, which does the same there and ends when the connection does.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/run/job_part.h"
#include "tools/run/remote/hosts.h"
#include "tools/run/supervisor.h"

namespace qccl::tools {

struct LaunchOptions {
  std::string program = "qccl run";  // begins the launcher's own messages
  JobPart part;                      // the whole job; on several hosts what is the same on all
  bool tag_output = false;
  std::string log_folder;  // empty: no logs
  Limits limits;
  std::vector<HostShare> hosts;                    // none: all ranks are on this one
  std::vector<std::string> ssh;                    // gets a host and a shell's command line as further arguments
  std::chrono::milliseconds host_timeout{60'000};  // of silence, after which a host counts as lost
};

// Blocks until the job and all its processes have ended; returns the exit code: the first failed rank's, or one of
// supervisor.h. Call it once, in a process without threads.
int launch(const LaunchOptions& options);

// The agent: serves a launcher on standard input and output.
int launch_agent();

}  // namespace qccl::tools
