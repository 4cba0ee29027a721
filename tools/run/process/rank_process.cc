#include "tools/run/process/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tools/run/process/process_tree.h"

namespace qccl::tools {
namespace {

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
  std::vector<std::string> variables;
  std::vector<char*> environment;
  Pipe output, errors;
  Pipe report;  // carries errno if exec fails; closed by exec if not
  pid_t launcher = -1;
};

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

// The launcher's environment; the variables in `added` replace those of the same name.
std::vector<std::string> merged_environment(const Variables& added) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string name = name_of(*variable);
    bool replaced = false;
    for (const auto& [key, value] : added) replaced = replaced || key == name;
    if (!replaced) variables.emplace_back(*variable);
  }
  for (const auto& [key, value] : added) variables.push_back(key + "=" + value);
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

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
  signals.restore();
  ::execvpe(plan.arguments[0], plan.arguments.data(), plan.environment.data());
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

}  // namespace

std::optional<StartFailure> start_rank(const RankSpec& spec, const BlockedSignals& signals, RankProcess& started) {
  Plan plan;
  std::vector<std::string> command = spec.command;
  plan.arguments = pointers(command);
  plan.variables = merged_environment(spec.environment);
  plan.environment = pointers(plan.variables);
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
