#include "tools/run/launcher.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/run/process/process_tree.h"
#include "tools/run/process/signals.h"
#include "tools/run/supervisor.h"

namespace qccl::tools {
namespace {

int code_of_job(const LaunchOptions& options, int status) {
  if (WIFSIGNALED(status)) {
    fmt::print(stderr, "{}: the launcher's watching process was killed by {}; ending all ranks\n", options.program,
               signal_name(WTERMSIG(status)));
  }
  return exit_code_of(status);
}

// Reaps all ended children; returns true if the job's own process was among them.
bool reap(pid_t job, int& status) {
  int ended_status = 0;
  for (pid_t ended; (ended = ::waitpid(-1, &ended_status, WNOHANG)) > 0;) {
    if (ended != job) continue;
    status = ended_status;
    return true;
  }
  return false;
}

// Passes signals on until the job's process ends.
int keep(const LaunchOptions& options, const BlockedSignals& signals, pid_t job) {
  int status = 0;
  for (;;) {
    const int signal = ::sigwaitinfo(&signals.readable(), nullptr);
    if (signal == SIGCHLD && reap(job, status)) return code_of_job(options, status);
    if (signal <= 0 || signal == SIGCHLD) continue;
    ::kill(job, signal);
    if (signal == SIGTSTP) ::raise(SIGSTOP);
  }
}

}  // namespace

int launch(const LaunchOptions& options) {
  std::fflush(nullptr);
  const BlockedSignals signals;
  adopt_orphans();
  const pid_t keeper = ::getpid();
  const pid_t job = ::fork();
  if (job < 0) {
    fmt::print(stderr, "{}: can't start another process: {}\n", options.program, std::strerror(errno));
    return 1;
  }
  if (job == 0) {
    ::setpgid(0, 0);  // a terminal's Ctrl-C reaches only the keeper, which passes it on
    const int code = supervise(options, signals, keeper);
    std::fflush(nullptr);
    ::_exit(code);
  }
  const int code = keep(options, signals, job);
  if (!kill_descendants()) fmt::print(stderr, "{}: some processes of the job can't be ended\n", options.program);
  return code;
}

}  // namespace qccl::tools
