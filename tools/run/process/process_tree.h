// The descendants of this process. A process may leave its group and session, but not its ancestors
// as long as those are subreapers.
#pragma once

#include <sys/types.h>

#include <vector>

#include "os/fd.h"

namespace qccl::tools {

// Orphans among this process's descendants become its children instead of init's.
void adopt_orphans();

// A descriptor that is readable once the process has ended; invalid on Linux older than 5.3.
os::Fd watch_process(pid_t pid);

// Every process below this one, zombies included.
std::vector<pid_t> descendants();

// Sends SIGKILL to all descendants, and again to those they started meanwhile, and reaps them.
// Returns false if some still exist after 10 s (a process blocked in the kernel can't die).
// SIGCHLD must be blocked.
bool kill_descendants();

}  // namespace qccl::tools
