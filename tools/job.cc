#include "job.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "port.h"
#include "process_tree.h"

namespace qccl::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kKillLimit{10'000};
constexpr std::chrono::milliseconds kKillAgain{50};  // for what was forked during the first round

double seconds(std::chrono::milliseconds duration) { return std::chrono::duration<double>(duration).count(); }

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : kExitSignalBase + WTERMSIG(status); }

std::string what_happened(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with code {}", WEXITSTATUS(status));
  return fmt::format("was killed by signal {} ({}{})", WTERMSIG(status), signal_name(WTERMSIG(status)),
                     WCOREDUMP(status) ? ", core dumped" : "");
}

// What another launcher around this one told its own processes and these ranks must not believe.
void forget_outer_launcher() {
  for (const char* name : {"TORCHELASTIC_USE_AGENT_STORE",
                           "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_RESTART_COUNT",
                           "TORCHELASTIC_MAX_RESTARTS",
                           "GROUP_RANK",
                           "GROUP_WORLD_SIZE",
                           "ROLE_RANK",
                           "ROLE_WORLD_SIZE",
                           "ROLE_NAME",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "PMI_RANK",
                           "PMI_SIZE",
                           "PMIX_RANK",
                           "MPI_LOCALRANKID",
                           "MPI_LOCALNRANKS",
                           "SLURM_PROCID",
                           "SLURM_LOCALID"}) {
    ::unsetenv(name);
  }
}

}  // namespace

Job::Job(const LaunchOptions& options, const BlockedSignals& signals, pid_t keeper)
    : options_(options), signals_(signals), keeper_(keeper) {}

int Job::run(const std::vector<std::string>& command) {
  adopt_orphans();
  const auto not_started = watch_events() ? start(command) : 1;
  if (not_started) {
    output_.finish();
    return *not_started;
  }
  if (options_.timeout.count() > 0) job_deadline_ = Clock::now() + options_.timeout;
  while (!reap_orphans()) {
    wait_for_events();
    on_ended_ranks();
    on_signals();
    on_deadlines();
  }
  output_.finish();
  return failure_code_.value_or(0);
}

bool Job::watch_events() {
  keeper_pidfd_ = watch_process(keeper_);
  signal_fd_ = Descriptor(::signalfd(-1, &signals_.readable(), SFD_NONBLOCK | SFD_CLOEXEC));
  ended_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!keeper_pidfd_.valid() || !signal_fd_.valid() || !ended_.valid()) {
    say("can't watch processes and signals (Linux 5.3 or later is needed)");
    return false;
  }
  return ::getppid() == keeper_;  // else it died before its pidfd was opened
}

// ---- start

RankSpec Job::spec_of(int rank, const std::vector<std::string>& command, int port) const {
  RankSpec spec;
  spec.rank = rank;
  spec.command = command;
  spec.pipe_output = options_.tag_output;
  spec.inherit_stdin = rank == 0;
  spec.environment = options_.variables;
  const std::string world = std::to_string(options_.ranks);
  const std::string number = std::to_string(rank);
  for (const auto& [name, value] : Variables{{"RANK", number},
                                             {"WORLD_SIZE", world},
                                             {"LOCAL_RANK", number},
                                             {"LOCAL_WORLD_SIZE", world},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", std::to_string(port)}}) {
    spec.environment.emplace_back(name, value);
  }
  // As torchrun: N ranks with a thread per core each would fight for the cores.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) spec.environment.emplace_back("OMP_NUM_THREADS", "1");
  return spec;
}

std::optional<int> Job::start(const std::vector<std::string>& command) {
  forget_outer_launcher();
  auto port = ReservedPort::take();
  if (!port) {
    say("can't find a free port on 127.0.0.1 for MASTER_PORT");
    return 1;
  }
  port_ = std::move(*port);
  StartFailure failure;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (start_one(spec_of(rank, command, port_.number()), failure)) continue;
    say(failure.message);
    kill_descendants(kKillLimit);
    return failure.exit_code;
  }
  return std::nullopt;
}

bool Job::start_one(const RankSpec& spec, StartFailure& failure) {
  RankProcess process;
  if (auto refused = start_rank(spec, signals_, process)) {
    failure = std::move(*refused);
    return false;
  }
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u32 = static_cast<std::uint32_t>(spec.rank);
  ::epoll_ctl(ended_.get(), EPOLL_CTL_ADD, process.pidfd.get(), &event);
  if (options_.tag_output) output_.add(spec.rank, std::move(process.output), std::move(process.errors));
  ranks_.push_back(std::move(process));
  return true;
}

// ---- events

void Job::wait_for_events() {
  poll_list_.clear();
  for (const Descriptor* descriptor : {&keeper_pidfd_, &signal_fd_, &ended_}) {
    poll_list_.push_back({descriptor->get(), POLLIN, 0});
  }
  output_.want(poll_list_);
  if (::poll(poll_list_.data(), poll_list_.size(), milliseconds_to_wait()) <= 0) return;
  output_.serve(poll_list_);
  if (poll_list_[0].revents != 0) {  // the keeper was killed: nobody is left to be polite for
    keeper_pidfd_.reset();
    kill_everything();
  }
}

int Job::milliseconds_to_wait() const {
  Time next = Time::max();
  if (job_deadline_) next = std::min(next, *job_deadline_);
  if (kill_deadline_) next = std::min(next, *kill_deadline_);
  if (next == Time::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

void Job::on_ended_ranks() {
  epoll_event events[64];
  const int count = ::epoll_wait(ended_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    RankProcess& process = ranks_[events[i].data.u32];
    int status = 0;
    if (::waitpid(process.pid, &status, WNOHANG) == process.pid) on_rank_end(process, status);
  }
}

void Job::on_rank_end(RankProcess& process, int status) {
  const pid_t pid = process.pid;
  process.pid = -1;
  process.pidfd.reset();  // leaves the epoll set, too
  if (terminal_lent_ && process.rank == 0) take_terminal_back(pid);
  if (const int code = exit_code_of(status); code != 0 && !failure_code_) {
    record_failure(code, fmt::format("rank {} (pid {}) {}", process.rank, pid, what_happened(status)));
  }
}

void Job::record_failure(int code, const std::string& what) {
  failure_code_ = code;
  const int others = live_ranks();
  if (others == 0 || told_to_end_) return say(what);
  say(fmt::format("{}; ending the other {}: {}", what, others == 1 ? "rank" : "ranks", live_rank_list()));
  ask_to_end(SIGTERM);
}

void Job::on_signals() {
  signalfd_siginfo info;
  while (::read(signal_fd_.get(), &info, sizeof(info)) == sizeof(info)) on_signal(static_cast<int>(info.ssi_signo));
}

void Job::on_signal(int signal) {
  if (signal == SIGCHLD) return lend_terminal();
  if (!asks_to_end(signal)) return signal_ranks(signal);
  if (std::exchange(signal_seen_, true)) {
    say(fmt::format("got {} as well: killing all ranks", signal_name(signal)));
    return kill_everything();
  }
  say(fmt::format("got {}: passed it on; SIGKILL follows in {:g} s", signal_name(signal), seconds(options_.grace)));
  ask_to_end(signal);
}

// A rank 0 that reads from the terminal is stopped by the kernel, as it is not in the terminal's
// foreground group: makes it that, if the keeper has it to give.
void Job::lend_terminal() {
  siginfo_t info = {};
  const pid_t reader = ranks_[0].pid;
  if (reader < 0 || ::waitid(P_PID, static_cast<id_t>(reader), &info, WSTOPPED | WNOHANG) != 0) return;
  if (info.si_pid != reader || (info.si_status != SIGTTIN && info.si_status != SIGTTOU)) return;
  if (::tcgetpgrp(STDIN_FILENO) != ::getpgid(keeper_)) return;
  terminal_lent_ = ::tcsetpgrp(STDIN_FILENO, reader) == 0;
  if (terminal_lent_) ::kill(-reader, SIGCONT);
}

void Job::take_terminal_back(pid_t from) {
  if (::tcgetpgrp(STDIN_FILENO) == from) ::tcsetpgrp(STDIN_FILENO, ::getpgid(keeper_));
}

void Job::on_deadlines() {
  const Time now = Clock::now();
  if (job_deadline_ && now >= *job_deadline_) {
    job_deadline_.reset();
    say(fmt::format("timeout of {:g} s: ending the ranks that still run: {}", seconds(options_.timeout),
                    live_rank_list()));
    if (!failure_code_) failure_code_ = kExitTimeout;
    ask_to_end(SIGTERM);
  }
  if (kill_deadline_ && now >= *kill_deadline_) {
    if (live_ranks() > 0 && !killing_) {
      say(fmt::format("still there {:g} s after they were told to end: killing {}", seconds(options_.grace),
                      live_rank_list()));
    }
    kill_everything();
  }
}

bool Job::reap_orphans() {
  for (;;) {
    siginfo_t info = {};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return true;
    if (info.si_pid == 0) break;
    const bool is_rank =
        std::any_of(ranks_.begin(), ranks_.end(), [&](const RankProcess& r) { return r.pid == info.si_pid; });
    if (is_rank) return false;  // on_ended_ranks() takes it
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
  // All ranks are gone, something they started is not.
  if (live_ranks() == 0 && !std::exchange(leftovers_told_, true)) ask_to_end(SIGTERM);
  return false;
}

// ---- ending

void Job::signal_ranks(int signal) {
  for (const RankProcess& process : ranks_) {
    if (process.pid > 0) ::kill(-process.pid, signal);
  }
}

void Job::ask_to_end(int signal) {
  told_to_end_ = true;
  if (!kill_deadline_) kill_deadline_ = Clock::now() + options_.grace;
  signal_ranks(signal);
  for (const pid_t pid : descendants()) {
    const pid_t group = ::getpgid(pid);
    const bool told =
        std::any_of(ranks_.begin(), ranks_.end(), [&](const RankProcess& r) { return r.pid > 0 && r.pid == group; });
    if (!told) ::kill(pid, signal);
  }
}

void Job::kill_everything() {
  killing_ = true;
  kill_deadline_ = Clock::now() + kKillAgain;
  signal_ranks(SIGKILL);
  for (const pid_t pid : descendants()) ::kill(pid, SIGKILL);
}

void Job::say(const std::string& text) { output_.add_message(fmt::format("{}: {}\n", options_.program, text)); }

int Job::live_ranks() const {
  return static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const RankProcess& process) { return process.pid > 0; }));
}

std::string Job::live_rank_list() const {
  std::vector<int> live;
  for (const RankProcess& process : ranks_) {
    if (process.pid > 0) live.push_back(process.rank);
  }
  return fmt::format("{}", fmt::join(live, " "));
}

}  // namespace qccl::tools
