// Starts a job's ranks and watches them until the last process that they left behind has ended.
//
// One thread runs one poll() loop over: the ranks' pidfds (in an epoll set, which reports them in the order in which
// they ended, so that the first failure is known even if several end at once), signals, the keeper's death, the ranks'
// output, and deadlines.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/launcher.h"
#include "tools/run/process/descriptor.h"
#include "tools/run/process/port.h"
#include "tools/run/process/rank_output.h"
#include "tools/run/process/rank_process.h"
#include "tools/run/process/signals.h"

namespace qccl::tools {

class Supervisor {
 public:
  // `keeper` is this process's parent. Options and signals outlive the supervisor.
  Supervisor(const LaunchOptions& options, const BlockedSignals& signals, pid_t keeper)
      : options_(options), signals_(signals), keeper_(keeper), console_(options.tag_output) {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  // Exit code of the job. Call it once.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  std::optional<StartFailure> start();
  std::optional<StartFailure> watch_events();
  std::optional<StartFailure> start_process(const RankSpec& spec);
  void wait_for_events();
  int milliseconds_to_wait() const;
  void on_ended_processes();
  void on_end(int rank, pid_t pid, int status);
  void on_signals();
  void on_signal(int signal);
  void on_deadlines();
  // Reaps adopted orphans; true if no process is left, live ranks included.
  bool reap_orphans();
  std::vector<int> live_ranks() const;
  void record_failure(int code, const std::string& what);
  void ask_to_end(int signal);
  void kill_everything();
  void signal_processes(int signal);
  void signal_descendants(int signal);
  void lend_terminal();
  void take_terminal_back(pid_t from);
  void say(const std::string& text);
  void finish();

  const LaunchOptions& options_;
  const BlockedSignals& signals_;
  const pid_t keeper_;
  std::optional<ReservedPort> port_;
  std::vector<RankProcess> processes_;
  RankPipes pipes_;
  Console console_;
  Descriptor keeper_pidfd_;
  Descriptor signal_fd_;
  Descriptor ended_;  // epoll set of the live processes' pidfds; an event's number is the index in processes_
  std::vector<pollfd> poll_list_;

  std::optional<int> failure_code_;
  bool told_to_end_ = false;  // SIGTERM was sent, or a signal that asks to end was passed on
  bool signal_seen_ = false;  // the user's first signal that asks to end has come
  bool leftovers_told_ = false;
  bool killing_ = false;
  bool terminal_lent_ = false;
  std::optional<Time> job_deadline_;
  std::optional<Time> kill_deadline_;
};

// The exit code of a process that has ended, from waitpid()'s status; 128 + n if signal n ended it.
int exit_code_of(int status);

}  // namespace qccl::tools
