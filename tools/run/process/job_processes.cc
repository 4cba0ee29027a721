#include "tools/run/process/job_processes.h"

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tools/run/process/process_tree.h"

namespace qccl::tools {

JobProcesses::JobProcesses(const BlockedSignals& signals) : signals_(signals), ended_(::epoll_create1(EPOLL_CLOEXEC)) {}

std::optional<StartFailure> JobProcesses::start(const RankSpec& spec, os::Fd& output, os::Fd& errors) {
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

std::vector<JobProcesses::Ended> JobProcesses::take_ended() {
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

bool JobProcesses::reap_orphans() {
  for (;;) {
    siginfo_t info = {};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return true;
    if (info.si_pid == 0 || find(info.si_pid) != nullptr) return false;  // take_ended() reaps the ranks
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

const RankProcess* JobProcesses::find(pid_t pid) const {
  const auto found = std::ranges::find(processes_, pid, &RankProcess::pid);
  return pid > 0 && found != processes_.end() ? &*found : nullptr;
}

std::vector<int> JobProcesses::live_ranks() const {
  std::vector<int> live;
  for (const RankProcess& process : processes_) {
    if (process.pid > 0) live.push_back(process.rank);
  }
  return live;
}

void JobProcesses::signal_ranks(int signal) const {
  for (const RankProcess& process : processes_) {
    if (process.pid > 0) ::kill(-process.pid, signal);
  }
}

void JobProcesses::signal_all(int signal) const {
  signal_ranks(signal);
  for (const pid_t pid : descendants()) {
    if (find(::getpgid(pid)) == nullptr) ::kill(pid, signal);
  }
}

void JobProcesses::kill_all() const {
  signal_ranks(SIGKILL);
  for (const pid_t pid : descendants()) ::kill(pid, SIGKILL);
}

}  // namespace qccl::tools
