#include "tools/run/supervisor.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tools/run/process/process_tree.h"
#include "tools/run/rank_spec.h"

namespace qccl::tools {
namespace {

constexpr std::chrono::milliseconds kKillAgain{50};  // for processes forked during the first round
constexpr int kExitTimeout = 124;
constexpr int kExitSignalBase = 128;

double seconds(std::chrono::milliseconds duration) { return std::chrono::duration<double>(duration).count(); }

// "exited with code 7".
std::string what_happened(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with code {}", WEXITSTATUS(status));
  return fmt::format("was killed by signal {} ({}{})", WTERMSIG(status), signal_name(WTERMSIG(status)),
                     WCOREDUMP(status) ? ", core dumped" : "");
}

// "0 1 3".
std::string rank_list(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, " ")); }

}  // namespace

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : kExitSignalBase + WTERMSIG(status); }

int Supervisor::run() {
  adopt_orphans();
  if (const auto failure = start()) {
    kill_descendants();
    say(failure->message);
    finish();
    return failure->exit_code;
  }
  if (options_.timeout.count() > 0) job_deadline_ = Clock::now() + options_.timeout;
  while (!reap_orphans()) {
    wait_for_events();
    on_ended_processes();
    on_signals();
    on_deadlines();
  }
  finish();
  return failure_code_.value_or(0);
}

// ---- start

std::optional<StartFailure> Supervisor::start() {
  if (auto failure = watch_events()) return failure;
  if (!options_.log_folder.empty()) {
    if (auto refused = console_.open_logs(options_.log_folder, options_.ranks)) return StartFailure{1, *refused};
  }
  port_ = ReservedPort::take();
  if (!port_) return StartFailure{1, "can't find a free port for MASTER_PORT"};
  forget_outer_launcher();
  for (const RankSpec& spec : rank_specs(options_, port_->number())) {
    if (auto failure = start_process(spec)) return failure;
  }
  return std::nullopt;
}

std::optional<StartFailure> Supervisor::watch_events() {
  keeper_pidfd_ = watch_process(keeper_);
  signal_fd_ = Descriptor(::signalfd(-1, &signals_.readable(), SFD_NONBLOCK | SFD_CLOEXEC));
  ended_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!keeper_pidfd_.valid() || !signal_fd_.valid() || !ended_.valid()) {
    return StartFailure{1, "can't watch processes and signals (Linux 5.3 or later is needed)"};
  }
  if (::getppid() != keeper_) return StartFailure{1, "the launcher was killed before any rank was started"};
  return std::nullopt;
}

std::optional<StartFailure> Supervisor::start_process(const RankSpec& spec) {
  RankProcess process;
  if (auto refused = start_rank(spec, signals_, process)) return refused;
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = processes_.size();
  ::epoll_ctl(ended_.get(), EPOLL_CTL_ADD, process.pidfd.get(), &event);
  if (spec.pipe_output) pipes_.add(spec.rank, std::move(process.output), std::move(process.errors));
  processes_.push_back(std::move(process));
  return std::nullopt;
}

// ---- events

void Supervisor::wait_for_events() {
  poll_list_.clear();
  for (const Descriptor* descriptor : {&keeper_pidfd_, &signal_fd_, &ended_}) {
    poll_list_.push_back({descriptor->get(), POLLIN, 0});
  }
  pipes_.want(poll_list_, console_);
  console_.want(poll_list_);
  if (::poll(poll_list_.data(), poll_list_.size(), milliseconds_to_wait()) <= 0) return;
  pipes_.serve(poll_list_, console_);
  console_.serve(poll_list_);
  if (poll_list_[0].revents != 0) {  // the keeper was killed: end everything without a grace period
    keeper_pidfd_.reset();
    kill_everything();
  }
}

int Supervisor::milliseconds_to_wait() const {
  Time next = Time::max();
  if (job_deadline_) next = std::min(next, *job_deadline_);
  if (kill_deadline_) next = std::min(next, *kill_deadline_);
  if (next == Time::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

void Supervisor::on_ended_processes() {
  epoll_event events[64];
  const int count = ::epoll_wait(ended_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    RankProcess& process = processes_[events[i].data.u64];
    int status = 0;
    const pid_t pid = process.pid;
    if (::waitpid(pid, &status, WNOHANG) != pid) continue;
    process.pid = -1;
    process.pidfd.reset();  // leaves the epoll set, too
    on_end(process.rank, pid, status);
  }
}

void Supervisor::on_end(int rank, pid_t pid, int status) {
  if (terminal_lent_ && rank == 0) take_terminal_back(pid);
  if (const int code = exit_code_of(status); code != 0) {
    record_failure(code, fmt::format("rank {} (pid {}) {}", rank, pid, what_happened(status)));
  }
}

void Supervisor::on_signals() {
  signalfd_siginfo info;
  while (::read(signal_fd_.get(), &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    signal == SIGCHLD ? lend_terminal() : on_signal(signal);
  }
}

void Supervisor::on_signal(int signal) {
  if (!asks_to_end(signal)) return signal_processes(signal);
  if (std::exchange(signal_seen_, true)) {
    say(fmt::format("got {} as well: killing all ranks", signal_name(signal)));
    return kill_everything();
  }
  say(fmt::format("got {}: passed it on; SIGKILL follows in {:g} s", signal_name(signal), seconds(options_.grace)));
  ask_to_end(signal);
}

void Supervisor::on_deadlines() {
  const Time now = Clock::now();
  if (job_deadline_ && now >= *job_deadline_) {
    job_deadline_.reset();
    say(fmt::format("timeout of {:g} s: ending the ranks that still run: {}", seconds(options_.timeout),
                    rank_list(live_ranks())));
    failure_code_ = failure_code_.value_or(kExitTimeout);
    ask_to_end(SIGTERM);
  }
  if (kill_deadline_ && now >= *kill_deadline_) {
    if (const auto live = live_ranks(); !live.empty() && !killing_) {
      say(fmt::format("still there {:g} s after they were told to end: killing {}", seconds(options_.grace),
                      rank_list(live)));
    }
    kill_everything();
  }
}

bool Supervisor::reap_orphans() {
  for (;;) {
    siginfo_t info = {};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return true;
    if (info.si_pid == 0) break;
    const bool is_ours = std::any_of(processes_.begin(), processes_.end(),
                                     [&](const RankProcess& process) { return process.pid == info.si_pid; });
    if (is_ours) return false;  // on_ended_processes() takes it
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
  // All ranks are gone, but processes that they started are not.
  if (live_ranks().empty() && !std::exchange(leftovers_told_, true)) ask_to_end(SIGTERM);
  return false;
}

// ---- ending

std::vector<int> Supervisor::live_ranks() const {
  std::vector<int> live;
  for (const RankProcess& process : processes_) {
    if (process.pid > 0) live.push_back(process.rank);
  }
  return live;
}

void Supervisor::record_failure(int code, const std::string& what) {
  if (failure_code_) return;
  failure_code_ = code;
  if (told_to_end_) return say(what);
  const auto others = live_ranks();
  const char* noun = others.size() == 1 ? "rank" : "ranks";
  say(others.empty() ? what : fmt::format("{}; ending the other {}: {}", what, noun, rank_list(others)));
  ask_to_end(SIGTERM);
}

void Supervisor::signal_processes(int signal) {
  for (const RankProcess& process : processes_) {
    if (process.pid > 0) ::kill(-process.pid, signal);
  }
}

// Signals the descendants that are not in a rank's process group.
void Supervisor::signal_descendants(int signal) {
  for (const pid_t pid : descendants()) {
    const pid_t group = ::getpgid(pid);
    const bool in_group = std::any_of(processes_.begin(), processes_.end(), [&](const RankProcess& process) {
      return process.pid > 0 && process.pid == group;
    });
    if (!in_group) ::kill(pid, signal);
  }
}

void Supervisor::ask_to_end(int signal) {
  told_to_end_ = true;
  if (!kill_deadline_) kill_deadline_ = Clock::now() + options_.grace;
  signal_processes(signal);
  signal_descendants(signal);
}

void Supervisor::kill_everything() {
  killing_ = true;
  signal_processes(SIGKILL);
  for (const pid_t pid : descendants()) ::kill(pid, SIGKILL);
  kill_deadline_ = Clock::now() + kKillAgain;
}

// ---- terminal and output

// The kernel stops a rank 0 that reads from the terminal, because it is not in the terminal's
// foreground group. Makes rank 0's group the foreground group, if the keeper's group is that now.
void Supervisor::lend_terminal() {
  siginfo_t info = {};
  const pid_t reader = processes_.empty() ? -1 : processes_[0].pid;
  if (reader < 0 || ::waitid(P_PID, static_cast<id_t>(reader), &info, WSTOPPED | WNOHANG) != 0) return;
  if (info.si_pid != reader || (info.si_status != SIGTTIN && info.si_status != SIGTTOU)) return;
  if (::tcgetpgrp(STDIN_FILENO) != ::getpgid(keeper_)) return;
  terminal_lent_ = ::tcsetpgrp(STDIN_FILENO, reader) == 0;
  if (terminal_lent_) ::kill(-reader, SIGCONT);
}

void Supervisor::take_terminal_back(pid_t from) {
  if (::tcgetpgrp(STDIN_FILENO) == from) ::tcsetpgrp(STDIN_FILENO, ::getpgid(keeper_));
}

void Supervisor::say(const std::string& text) { console_.add_message(fmt::format("{}: {}\n", options_.program, text)); }

void Supervisor::finish() {
  pipes_.finish(console_);
  console_.finish();
}

}  // namespace qccl::tools
