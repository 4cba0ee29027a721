// Watches a job's processes from their start to the end of the last process that they left behind.
//
// One thread, one poll() loop over: the processes' pidfds (behind an epoll set, which reports them in the order in
// which they ended, so that the first failure is known even if several came at once), signals, the keeper's death,
// what the job adds, and deadlines.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/process/descriptor.h"
#include "tools/run/process/rank_process.h"
#include "tools/run/process/signals.h"

namespace qccl::tools {

struct Limits {
  std::chrono::milliseconds timeout{0};   // of the whole job; 0: none
  std::chrono::milliseconds grace{5000};  // between SIGTERM and SIGKILL
};

class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  Supervisor(const Limits& limits, const BlockedSignals& signals, pid_t keeper)
      : limits_(limits), signals_(signals), keeper_(keeper) {}
  virtual ~Supervisor() = default;
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  // Exit code of the job.
  int run();

 protected:
  // ---- what a job is made of

  // Exit code if it could not be started.
  virtual std::optional<int> start() = 0;
  virtual void want(std::vector<pollfd>& list) const = 0;
  virtual void serve(const std::vector<pollfd>& list) = 0;
  virtual void on_end(RankProcess& process, pid_t pid, int status) = 0;
  virtual void on_child_signal() {}
  virtual void say(const std::string& text) = 0;
  virtual void finish() = 0;

  // ---- what it may use

  // Its number is `process.rank`; nothing, and a message, if it can't be started.
  std::optional<StartFailure> start_process(const RankSpec& spec);
  void record_failure(int code, const std::string& what);
  pid_t keeper() const { return keeper_; }

  std::vector<RankProcess> processes_;

 private:
  bool watch_events();
  void wait_for_events();
  int milliseconds_to_wait() const;
  void on_ended_processes();
  void on_signals();
  void on_signal(int signal);
  void on_deadlines();
  // Reaps adopted orphans; true if no process is left, live ranks included.
  bool reap_orphans();
  bool is_running() const;  // of the processes at least one
  std::vector<int> live_ranks() const;
  void ask_to_end(int signal);
  void kill_everything();
  void signal_processes(int signal);
  void signal_descendants(int signal);

  Limits limits_;
  const BlockedSignals& signals_;
  const pid_t keeper_;
  Descriptor keeper_pidfd_;
  Descriptor signal_fd_;
  Descriptor ended_;  // epoll set of the live processes' pidfds; an event's number is the place in processes_
  std::vector<pollfd> poll_list_;

  std::optional<int> failure_code_;
  bool told_to_end_ = false;  // SIGTERM was sent, or a signal that ends was passed on
  bool signal_seen_ = false;  // the user's first signal that ends
  bool leftovers_told_ = false;
  bool killing_ = false;
  std::optional<Time> job_deadline_;
  std::optional<Time> kill_deadline_;
};

inline constexpr std::chrono::milliseconds kKillLimit{10'000};
inline constexpr int kExitTimeout = 124;
inline constexpr int kExitSignalBase = 128;

// Of a process that has ended, from what waitpid() said.
int exit_code_of(int status);
// "exited with code 7".
std::string what_happened(int status);
// "0 1 3".
std::string rank_list(const std::vector<int>& ranks);

}  // namespace qccl::tools
