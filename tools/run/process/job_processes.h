// The ranks' processes, and everything that they started.
#pragma once

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tools/run/process/rank_process.h"

namespace qccl::tools {

class JobProcesses {
 public:
  explicit JobProcesses(const BlockedSignals& signals) : signals_(signals), ended_(::epoll_create1(EPOLL_CLOEXEC)) {}

  // The descriptor that is readable once a rank has ended; -1 if the system refused it.
  int ended_fd() const { return ended_.get(); }

  // Gives the read ends of the rank's pipes, if it has any, to `output` and `errors`.
  std::optional<StartFailure> start(const RankSpec& spec, os::Fd& output, os::Fd& errors) {
    RankProcess process;
    if (auto refused = start_rank(spec, signals_, process)) return refused;
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = processes_.size();
    ::epoll_ctl(ended_.get(), EPOLL_CTL_ADD, process.pidfd.get(), &event);
    output = std::move(process.output);
    errors = std::move(process.errors);
    processes_.push_back(std::move(process));
    return std::nullopt;
  }

  struct Ended {
    int rank;
    pid_t pid;
    int status;  // waitpid()'s
  };

  // The ranks that have ended since the last call, in that order: the first failure is known even if several end at
  // once.
  std::vector<Ended> take_ended() {
    epoll_event events[64];
    const int count = ::epoll_wait(ended_.get(), events, 64, 0);
    std::vector<Ended> ended;
    for (int i = 0; i < count; ++i) {
      RankProcess& process = processes_[events[i].data.u64];
      int status = 0;
      if (::waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
      ended.push_back({process.rank, process.pid, status});
      process.pid = -1;
      process.pidfd.reset();  // leaves the epoll set, too
    }
    return ended;
  }

  // Reaps adopted orphans; true if no process is left, ranks included.
  bool reap_orphans() {
    for (;;) {
      siginfo_t info = {};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return true;
      if (info.si_pid == 0 || find(info.si_pid) != nullptr) return false;  // take_ended() reaps the ranks
      ::waitpid(info.si_pid, nullptr, WNOHANG);
    }
  }

  std::vector<int> live_ranks() const {
    std::vector<int> live;
    for (const RankProcess& process : processes_) {
      if (process.pid > 0) live.push_back(process.rank);
    }
    return live;
  }

  // -1 once it has ended.
  pid_t pid_of_first() const { return processes_.empty() ? -1 : processes_[0].pid; }

  // Signals the process groups of the live ranks.
  void signal_ranks(int signal) const {
    for (const RankProcess& process : processes_) {
      if (process.pid > 0) ::kill(-process.pid, signal);
    }
  }

  // Signals those groups and all descendants outside them.
  void signal_all(int signal) const {
    signal_ranks(signal);
    for (const pid_t pid : descendants()) {
      if (find(::getpgid(pid)) == nullptr) ::kill(pid, signal);
    }
  }
  void kill_all() const {
    signal_ranks(SIGKILL);
    for (const pid_t pid : descendants()) ::kill(pid, SIGKILL);
  }

 private:
  const RankProcess* find(pid_t pid) const {
    const auto found = std::ranges::find(processes_, pid, &RankProcess::pid);
    return pid > 0 && found != processes_.end() ? &*found : nullptr;
  }

  const BlockedSignals& signals_;
  std::vector<RankProcess> processes_;
  os::Fd ended_;  // epoll set of the live processes' pidfds; an event's number is the index in processes_
};

}  // namespace qccl::tools
