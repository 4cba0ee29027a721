#include "tools/run/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "os/net/socket.h"
#include "os/secret_file.h"
#include "secure/key.h"
#include "tools/run/process/job_processes.h"
#include "tools/run/process/rank_output.h"

namespace qccl::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

constexpr std::chrono::milliseconds kKillAgain{50};  // for processes forked during the first round
constexpr int kExitTimeout = 124;
constexpr int kExitSignalBase = 128;

// The exit code of a process that has ended; 128 + n if signal n ended it.
int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : kExitSignalBase + WTERMSIG(status); }

double seconds(std::chrono::milliseconds duration) { return std::chrono::duration<double>(duration).count(); }

// "exited with code 7".
std::string what_happened(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with code {}", WEXITSTATUS(status));
  return fmt::format("was killed by signal {} ({}{})", WTERMSIG(status), signal_name(WTERMSIG(status)),
                     WCOREDUMP(status) ? ", core dumped" : "");
}

// "0 1 3".
std::string rank_list(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, " ")); }

// The terminal's foreground process group. The kernel stops a rank 0 that reads from the terminal, because rank 0's
// group is not in the foreground.
class ForegroundGroup {
 public:
  explicit ForegroundGroup(pid_t keeper) : keeper_(keeper) {}

  // Makes `reader`'s group the foreground group if reading has stopped it and the keeper's group is in the foreground.
  void lend_to(pid_t reader) {
    siginfo_t info = {};
    if (reader < 0 || ::waitid(P_PID, static_cast<id_t>(reader), &info, WSTOPPED | WNOHANG) != 0) return;
    if (info.si_pid != reader || (info.si_status != SIGTTIN && info.si_status != SIGTTOU)) return;
    if (::tcgetpgrp(STDIN_FILENO) != ::getpgid(keeper_)) return;
    is_lent_ = ::tcsetpgrp(STDIN_FILENO, reader) == 0;
    if (is_lent_) ::kill(-reader, SIGCONT);
  }
  void take_back_from(pid_t reader) {
    if (is_lent_ && ::tcgetpgrp(STDIN_FILENO) == reader) ::tcsetpgrp(STDIN_FILENO, ::getpgid(keeper_));
  }

 private:
  const pid_t keeper_;
  bool is_lent_ = false;
};

// Gives the ranks a key of their own, unless the user gave one. They are on one host, whose loopback nobody else reads,
// so they need not encrypt what they send.
std::optional<StartFailure> pass_key(LaunchOptions& options, os::PassedSecret& passed) {
  if (!is_set(options.variables, "QCCL_ENCRYPTION")) options.variables.emplace_back("QCCL_ENCRYPTION", "off");
  if (is_set(options.variables, "QCCL_KEY") || is_set(options.variables, "QCCL_KEY_FILE")) return std::nullopt;
  auto text = secure::make_key_text();
  if (!text) return StartFailure{1, text.error().message};
  auto made = os::pass_secret(*text);
  secure::wipe(*text);
  if (!made) return StartFailure{1, made.error().message};
  passed = std::move(*made);
  options.variables.emplace_back("QCCL_KEY_FD", passed.location);
  return std::nullopt;
}

// One thread runs one poll() loop over the ranks' ends, signals, the keeper's death, the ranks' output, and deadlines,
// until the last process that the ranks left behind has ended.
class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, const BlockedSignals& signals, pid_t keeper)
      : options_(options),
        keeper_(keeper),
        processes_(signals),
        foreground_(keeper),
        console_(options.tag_output),
        keeper_pidfd_(watch_process(keeper)),
        signal_fd_(::signalfd(-1, &signals.readable(), SFD_NONBLOCK | SFD_CLOEXEC)) {}

  int run() {
    adopt_orphans();
    if (const auto failure = start()) {
      kill_descendants();
      say(failure->message);
      console_.finish();
      return failure->exit_code;
    }
    if (options_.timeout.count() > 0) job_deadline_ = Clock::now() + options_.timeout;
    while (has_processes()) {
      wait_for_events();
      on_ended_ranks();
      on_signals();
      on_deadlines();
    }
    console_.finish();
    return failure_code_.value_or(0);
  }

 private:
  std::optional<StartFailure> start() {
    if (!keeper_pidfd_.valid() || !signal_fd_.valid() || processes_.ended_fd() < 0) {
      return StartFailure{1, "can't watch processes and signals (Linux 5.3 or later is needed)"};
    }
    if (::getppid() != keeper_) return StartFailure{1, "the launcher was killed before any rank was started"};
    if (!options_.log_folder.empty()) {
      if (auto refused = console_.open_logs(options_.log_folder, options_.ranks)) return StartFailure{1, *refused};
    }
    auto port = os::reserve_tcp_port();
    const auto number = port.ok() ? os::local_port(*port) : Result<std::uint16_t>(port.failure());
    if (!number.ok()) return StartFailure{1, "can't find a free port for MASTER_PORT: " + number.error().message};
    port_ = std::move(*port);
    forget_outer_launcher();
    LaunchOptions options = options_;
    if (auto failure = pass_key(options, key_)) return failure;
    for (const RankSpec& spec : rank_specs(options, number.value())) {
      os::Fd output, errors;
      if (auto failure = processes_.start(spec, output, errors)) return failure;
      if (spec.pipe_output) console_.add_pipes(spec.rank, std::move(output), std::move(errors));
    }
    return std::nullopt;
  }

  void wait_for_events() {
    std::vector<pollfd> list;
    for (const int fd : {keeper_pidfd_.get(), signal_fd_.get(), processes_.ended_fd()}) list.push_back({fd, POLLIN, 0});
    console_.want(list);
    if (::poll(list.data(), list.size(), milliseconds_to_wait()) <= 0) return;
    console_.serve(list);
    if (list[0].revents != 0) {  // the keeper was killed: end everything without a grace period
      keeper_pidfd_.reset();
      kill_everything();
    }
  }

  int milliseconds_to_wait() const {
    Time next = Time::max();
    if (job_deadline_) next = std::min(next, *job_deadline_);
    if (kill_deadline_) next = std::min(next, *kill_deadline_);
    if (next == Time::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
  }

  void on_ended_ranks() {
    for (const auto& [rank, pid, status] : processes_.take_ended()) {
      if (rank == 0) foreground_.take_back_from(pid);
      if (const int code = exit_code_of(status); code != 0) {
        record_failure(code, fmt::format("rank {} (pid {}) {}", rank, pid, what_happened(status)));
      }
    }
  }

  void on_signals() {
    signalfd_siginfo info;
    while (::read(signal_fd_.get(), &info, sizeof(info)) == sizeof(info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      signal == SIGCHLD ? foreground_.lend_to(processes_.pid_of_first()) : on_signal(signal);
    }
  }

  void on_signal(int signal) {
    if (!asks_to_end(signal)) return processes_.signal_ranks(signal);
    if (std::exchange(signal_seen_, true)) {
      say(fmt::format("got {} as well: killing all ranks", signal_name(signal)));
      return kill_everything();
    }
    say(fmt::format("got {}: passed it on; SIGKILL follows in {:g} s", signal_name(signal), seconds(options_.grace)));
    ask_to_end(signal);
  }

  void on_deadlines() {
    const Time now = Clock::now();
    if (job_deadline_ && now >= *job_deadline_) {
      job_deadline_.reset();
      say(fmt::format("timeout of {:g} s: ending the ranks that still run: {}", seconds(options_.timeout),
                      rank_list(processes_.live_ranks())));
      failure_code_ = failure_code_.value_or(kExitTimeout);
      ask_to_end(SIGTERM);
    }
    if (kill_deadline_ && now >= *kill_deadline_) {
      if (const auto live = processes_.live_ranks(); !live.empty() && !killing_) {
        say(fmt::format("still there {:g} s after they were told to end: killing {}", seconds(options_.grace),
                        rank_list(live)));
      }
      kill_everything();
    }
  }

  // Asks the processes that the ranks left behind to end, once no rank is left.
  bool has_processes() {
    if (processes_.reap_orphans()) return false;
    if (processes_.live_ranks().empty() && !std::exchange(leftovers_asked_, true)) ask_to_end(SIGTERM);
    return true;
  }

  void record_failure(int code, const std::string& what) {
    if (failure_code_) return;
    failure_code_ = code;
    if (asked_to_end_) return say(what);
    const auto others = processes_.live_ranks();
    const char* noun = others.size() == 1 ? "rank" : "ranks";
    say(others.empty() ? what : fmt::format("{}; ending the other {}: {}", what, noun, rank_list(others)));
    ask_to_end(SIGTERM);
  }

  void ask_to_end(int signal) {
    asked_to_end_ = true;
    if (!kill_deadline_) kill_deadline_ = Clock::now() + options_.grace;
    processes_.signal_all(signal);
  }

  void kill_everything() {
    killing_ = true;
    processes_.kill_all();
    kill_deadline_ = Clock::now() + kKillAgain;
  }

  void say(const std::string& text) { console_.add_message(fmt::format("{}: {}\n", options_.program, text)); }

  const LaunchOptions& options_;
  const pid_t keeper_;
  os::Fd port_;           // reserved for MASTER_PORT
  os::PassedSecret key_;  // which the ranks inherit
  JobProcesses processes_;
  ForegroundGroup foreground_;
  Console console_;
  os::Fd keeper_pidfd_;
  os::Fd signal_fd_;

  std::optional<int> failure_code_;
  bool asked_to_end_ = false;  // SIGTERM was sent, or a signal that asks to end was passed on
  bool signal_seen_ = false;   // the user's first signal that asks to end has come
  bool leftovers_asked_ = false;
  bool killing_ = false;
  std::optional<Time> job_deadline_;
  std::optional<Time> kill_deadline_;
};

// ---- The keeper

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
    const int code = Supervisor(options, signals, keeper).run();
    std::fflush(nullptr);
    ::_exit(code);
  }
  const int code = keep(options, signals, job);
  if (!kill_descendants()) fmt::print(stderr, "{}: some processes of the job can't be ended\n", options.program);
  return code;
}

}  // namespace qccl::tools
