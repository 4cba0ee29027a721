// `qccl ps --stacks`: py-spy shows what Python the rank runs that holds the others up.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "tools/ps/job_view.h"

namespace qccl::tools {
namespace {

// Runs py-spy to its end, with this program's output as its own. Returns what went wrong.
std::optional<std::string> run_py_spy(int process) {
  std::string number = std::to_string(process);
  std::string words[] = {"py-spy", "dump", "--pid"};
  char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(), number.data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments, environ);
  if (error == ENOENT) {
    return fmt::format(
        "py-spy is not installed here, so there is no stack of process {}: pip install py-spy, or gdb -p {}", process,
        process);
  }
  if (error != 0) return fmt::format("py-spy cannot be started: {}", std::strerror(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return fmt::format("py-spy has no stack of process {} (see above): run this as root, or allow ptrace", process);
}

std::optional<std::string> print_stack(const JobStatus& job) {
  const HoldUp hold_up = find_hold_up(job.ranks);
  if (hold_up.rank < 0)
    return fmt::format("job {}: no single rank holds others up, so there is no stack to show", job.job);
  for (const RankStatus& rank : job.ranks) {
    if (rank.rank != hold_up.rank) continue;
    if (rank.state == '?') {  // of no process here
      return fmt::format("job {}: rank {} holds others up on {}: run qccl ps --stacks there", job.job, rank.rank,
                         rank.host.empty() ? "another host" : rank.host);
    }
    fmt::print("\nrank {}, process {}:\n", rank.rank, rank.process);
    std::fflush(stdout);
    return run_py_spy(rank.process);
  }
  return std::nullopt;
}

}  // namespace

bool print_stacks(const std::vector<JobStatus>& jobs) {
  bool any = false;
  for (const JobStatus& job : jobs) {
    const auto problem = print_stack(job);
    if (problem) fmt::print(stderr, "qccl ps: {}\n", *problem);
    any = any || !problem;
  }
  return any;
}

}  // namespace qccl::tools
