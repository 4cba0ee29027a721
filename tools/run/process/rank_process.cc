#include "tools/run/process/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/text.h"

namespace qccl::tools {
namespace {

constexpr int kForwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGALRM, SIGWINCH};

bool is_ignored(int signal) {
  struct sigaction action;
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

struct Pipe {
  os::Fd read;
  os::Fd write;

  static Pipe create() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) return {};
    return {os::Fd(ends[0]), os::Fd(ends[1])};
  }
};

// The data that the child needs, made before the fork.
struct Plan {
  std::vector<char*> arguments;
  Pipe output, errors;
  Pipe report;  // carries errno if exec fails; closed by exec if not
  pid_t launcher = -1;
};

void redirect(const Plan& plan, const RankSpec& spec) {
  if (!spec.inherit_input) {
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, STDIN_FILENO);
    if (null > STDERR_FILENO) ::close(null);
  }
  if (!spec.pipe_output) return;
  ::dup2(plan.output.write.get(), STDOUT_FILENO);
  ::dup2(plan.errors.write.get(), STDERR_FILENO);
}

void bind(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (!cores.empty()) ::sched_setaffinity(0, sizeof(set), &set);
}

[[noreturn]] void become_rank(const Plan& plan, const RankSpec& spec, const BlockedSignals& signals) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.launcher) ::_exit(1);  // died before the line above
  redirect(plan, spec);
  bind(spec.cores);
  for (const auto& [name, value] : spec.environment) ::setenv(name.c_str(), value.c_str(), 1);
  signals.restore();
  ::execvp(plan.arguments[0], plan.arguments.data());
  const int why = errno;
  const ssize_t reported = ::write(plan.report.write.get(), &why, sizeof(why));
  ::_exit(reported == sizeof(why) ? 127 : 126);
}

// 0 if the program runs, else why exec failed.
int exec_result(const Plan& plan) {
  int why = 0;
  ssize_t got;
  do {
    got = ::read(plan.report.read.get(), &why, sizeof(why));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(why) ? why : 0;
}

StartFailure system_refused(const std::string& what) {
  return {1, fmt::format("can't {}: {}", what, std::strerror(errno))};
}

StartFailure not_started(const std::string& program, int why) {
  if (why == ENOENT && program.find('/') == std::string::npos) {
    return {127, fmt::format("can't start '{}': there is no such program in PATH", program)};
  }
  if (why == ENOENT) {
    return {127, fmt::format("can't start '{}': there is no such file, or its interpreter is missing", program)};
  }
  return {why == ENOTDIR ? 127 : 126, fmt::format("can't start '{}': {}", program, std::strerror(why))};
}

void make_non_blocking(const os::Fd& descriptor) {
  if (!descriptor.valid()) return;
  ::fcntl(descriptor.get(), F_SETFL, ::fcntl(descriptor.get(), F_GETFL) | O_NONBLOCK);
}

using SteadyTime = std::chrono::steady_clock;

constexpr std::chrono::seconds kKillLimit{10};

// /proc/PID/stat is "PID (NAME) STATE PPID ...", where NAME may hold anything.
std::optional<pid_t> parent_of(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos || text.size() < name_end + 5) return std::nullopt;
  const auto begin = name_end + 4;
  return parse_number<pid_t>(text.substr(begin, text.find(' ', begin) - begin));
}

std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> children;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const auto pid = parse_number<pid_t>(entry.path().filename().string());
    if (!pid) continue;
    if (const auto parent = parent_of(entry.path())) children.emplace(*parent, *pid);
  }
  return children;
}

// True when this process has no children left, dead or alive.
bool reap_all() {
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid == 0) return false;
    if (pid < 0) return errno == ECHILD;
  }
}

void wait_for_child_signal() {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  const timespec twenty_milliseconds = {0, 20'000'000};
  ::sigtimedwait(&child, nullptr, &twenty_milliseconds);
}

}  // namespace

bool asks_to_end(int signal) { return signal == SIGHUP || signal == SIGINT || signal == SIGQUIT || signal == SIGTERM; }

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

BlockedSignals::BlockedSignals() {
  ::sigemptyset(&readable_);
  ::sigaddset(&readable_, SIGCHLD);
  for (const int signal : kForwarded) {
    if (!is_ignored(signal)) ::sigaddset(&readable_, signal);
  }
  sigset_t blocked = readable_;
  ::sigaddset(&blocked, SIGTTOU);  // to hand the terminal over from the background
  ::sigprocmask(SIG_BLOCK, &blocked, &original_mask_);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &original_pipe_);
}

void BlockedSignals::restore() const {
  ::sigaction(SIGPIPE, &original_pipe_, nullptr);
  ::sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
}

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> descendants() {
  const auto children = children_by_parent();
  std::vector<pid_t> found{::getpid()};
  for (std::size_t next = 0; next < found.size(); ++next) {
    const auto [begin, end] = children.equal_range(found[next]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

bool kill_descendants() {
  const auto deadline = SteadyTime::now() + kKillLimit;
  while (!reap_all()) {
    for (const pid_t pid : descendants()) ::kill(pid, SIGKILL);
    if (SteadyTime::now() > deadline) return false;
    wait_for_child_signal();
  }
  return true;
}

// glibc 2.36 declares pidfd_open() for C only.
os::Fd watch_process(pid_t pid) { return os::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

std::optional<StartFailure> start_rank(const RankSpec& spec, const BlockedSignals& signals, RankProcess& started) {
  Plan plan;
  std::vector<std::string> command = spec.command;
  for (std::string& word : command) plan.arguments.push_back(word.data());
  plan.arguments.push_back(nullptr);
  plan.launcher = ::getpid();
  plan.report = Pipe::create();
  if (spec.pipe_output) {
    plan.output = Pipe::create();
    plan.errors = Pipe::create();
  }
  const bool missing = spec.pipe_output && !(plan.output.read.valid() && plan.errors.read.valid());
  if (missing || !plan.report.read.valid()) return system_refused("make a pipe");
  const pid_t pid = ::_Fork();  // fork() would close the child's ends of the pipes (os/fd.h)
  if (pid < 0) return system_refused("start another process");
  if (pid == 0) become_rank(plan, spec, signals);
  ::setpgid(pid, pid);  // the child does the same, because either may run first
  plan.report.write.reset();
  if (const int why = exec_result(plan); why != 0) {
    ::waitpid(pid, nullptr, 0);
    return not_started(spec.command[0], why);
  }
  started.rank = spec.rank;
  started.pid = pid;
  started.pidfd = watch_process(pid);
  if (!started.pidfd.valid()) {
    const StartFailure failure = system_refused("watch a process (Linux 5.3 or later is needed)");
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return failure;
  }
  started.output = std::move(plan.output.read);
  started.errors = std::move(plan.errors.read);
  for (const os::Fd* end : {&started.output, &started.errors}) make_non_blocking(*end);
  return std::nullopt;
}

}  // namespace qccl::tools
