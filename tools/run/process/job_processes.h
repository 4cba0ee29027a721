// The ranks' processes, and everything that they started.
#pragma once

#include <optional>
#include <vector>

#include "tools/run/process/rank_process.h"

namespace qccl::tools {

class JobProcesses {
 public:
  explicit JobProcesses(const BlockedSignals& signals);

  // The descriptor that is readable once a rank has ended; -1 if the system refused it.
  int ended_fd() const { return ended_.get(); }

  // Gives the read ends of the rank's pipes, if it has any, to `output` and `errors`.
  std::optional<StartFailure> start(const RankSpec& spec, os::Fd& output, os::Fd& errors);

  struct Ended {
    int rank;
    pid_t pid;
    int status;  // waitpid()'s
  };
  // The ranks that have ended since the last call, in that order: the first failure is known even if several end at
  // once.
  std::vector<Ended> take_ended();

  // Reaps adopted orphans; true if no process is left, ranks included.
  bool reap_orphans();

  std::vector<int> live_ranks() const;
  // -1 once it has ended.
  pid_t pid_of_first() const { return processes_.empty() ? -1 : processes_[0].pid; }

  // Signals the process groups of the live ranks.
  void signal_ranks(int signal) const;
  // Signals those groups and all descendants outside them.
  void signal_all(int signal) const;
  void kill_all() const;

 private:
  const RankProcess* find(pid_t pid) const;

  const BlockedSignals& signals_;
  std::vector<RankProcess> processes_;
  os::Fd ended_;  // epoll set of the live processes' pidfds; an event's number is the index in processes_
};

}  // namespace qccl::tools
