#include "tools/run/launcher.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tools/run/process/process_tree.h"
#include "tools/run/process/signals.h"
#include "tools/run/remote/agent.h"
#include "tools/run/remote/hosts_job.h"
#include "tools/run/run_job.h"

namespace qccl::tools {
namespace {

constexpr std::chrono::milliseconds kKillLimit{10'000};

int code_of_job(const char* program, int status) {
  if (WIFSIGNALED(status)) {
    fmt::print(stderr, "{}: the launcher's watching process was killed by {}; ending all ranks\n", program,
               signal_name(WTERMSIG(status)));
  }
  return exit_code_of(status);
}

// Reaps what there is; true once the job's own process was among it.
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
int keep(const char* program, const BlockedSignals& signals, pid_t job) {
  int status = 0;
  for (;;) {
    const int signal = ::sigwaitinfo(&signals.readable(), nullptr);
    if (signal == SIGCHLD && reap(job, status)) return code_of_job(program, status);
    if (signal <= 0 || signal == SIGCHLD) continue;
    ::kill(job, signal);
    if (signal == SIGTSTP) ::raise(SIGSTOP);
  }
}

// `make_job(signals, keeper)` gives the child's Supervisor.
template <class MakeJob>
int supervise(const char* program, const MakeJob& make_job) {
  std::fflush(nullptr);
  const BlockedSignals signals;
  adopt_orphans();
  const pid_t keeper = ::getpid();
  const pid_t job = ::fork();
  if (job < 0) {
    fmt::print(stderr, "{}: can't start another process: {}\n", program, std::strerror(errno));
    return 1;
  }
  if (job == 0) {
    ::setpgid(0, 0);  // a terminal's Ctrl-C reaches the keeper alone, which passes it on
    const std::unique_ptr<Supervisor> supervisor = make_job(signals, keeper);
    const int code = supervisor->run();
    std::fflush(nullptr);
    ::_exit(code);
  }
  const int code = keep(program, signals, job);
  if (!kill_descendants(kKillLimit)) fmt::print(stderr, "{}: some processes of the job can't be ended\n", program);
  return code;
}

}  // namespace

int launch(const LaunchOptions& options) {
  const auto make_job = [&](const BlockedSignals& signals, pid_t keeper) -> std::unique_ptr<Supervisor> {
    if (options.hosts.empty()) return std::make_unique<RunJob>(options, signals, keeper);
    return std::make_unique<HostsJob>(options, signals, keeper);
  };
  return supervise(options.program.c_str(), make_job);
}

int launch_agent() {
  return supervise("qccl run --agent", [](const BlockedSignals& signals, pid_t keeper) {
    return std::unique_ptr<Supervisor>(std::make_unique<Agent>(signals, keeper));
  });
}

}  // namespace qccl::tools
