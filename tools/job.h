// The ranks of a job, from start to the end of the last process they left behind.
//
// One thread, one poll() loop over: the ranks' pidfds (behind an epoll set, which reports them in
// the order in which they ended, so that the first failure is known even if several came at
// once), signals, the keeper's death, the ranks' output, and two deadlines.
#pragma once

#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher.h"
#include "port.h"
#include "tagged_output.h"

namespace qccl::tools {

class Job {
 public:
  Job(const LaunchOptions& options, const BlockedSignals& signals, pid_t keeper);
  // Exit code of the job.
  int run(const std::vector<std::string>& command);

 private:
  using Time = std::chrono::steady_clock::time_point;

  // Exit code if a rank could not be started.
  std::optional<int> start(const std::vector<std::string>& command);
  bool watch_events();
  RankSpec spec_of(int rank, const std::vector<std::string>& command, int port) const;
  bool start_one(const RankSpec& spec, StartFailure& failure);

  void wait_for_events();
  int milliseconds_to_wait() const;
  void on_ended_ranks();
  void on_rank_end(RankProcess& process, int status);
  void on_signals();
  void on_signal(int signal);
  void on_deadlines();
  void lend_terminal();
  void take_terminal_back(pid_t from);
  // Reaps adopted orphans; true if no process is left, live ranks included.
  bool reap_orphans();

  void signal_ranks(int signal);
  void ask_to_end(int signal);
  void kill_everything();
  void record_failure(int code, const std::string& what);
  void say(const std::string& text);

  int live_ranks() const;
  std::string live_rank_list() const;

  const LaunchOptions& options_;
  const BlockedSignals& signals_;
  const pid_t keeper_;
  Descriptor keeper_pidfd_;
  Descriptor signal_fd_;
  Descriptor ended_;  // epoll set of the live ranks' pidfds; an event's number is the rank
  ReservedPort port_;
  std::vector<RankProcess> ranks_;
  TaggedOutput output_;
  std::vector<pollfd> poll_list_;

  std::optional<int> failure_code_;
  bool told_to_end_ = false;  // SIGTERM was sent, or a signal that ends was passed on
  bool signal_seen_ = false;  // the user's first signal that ends
  bool leftovers_told_ = false;
  bool killing_ = false;
  bool terminal_lent_ = false;
  std::optional<Time> job_deadline_;
  std::optional<Time> kill_deadline_;
};

}  // namespace qccl::tools
