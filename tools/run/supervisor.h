// Starts a job's ranks and watches them until the last process that they left behind has ended.
#pragma once

#include <sys/types.h>

#include "tools/run/launcher.h"
#include "tools/run/process/signals.h"

namespace qccl::tools {

// Runs the job in this process, whose parent is `keeper`. Blocks; returns the job's exit code.
int supervise(const LaunchOptions& options, const BlockedSignals& signals, pid_t keeper);

// The exit code of a process that has ended, from waitpid()'s status; 128 + n if signal n ended it.
int exit_code_of(int status);

}  // namespace qccl::tools
