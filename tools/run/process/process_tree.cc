#include "tools/run/process/process_tree.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "base/text.h"

namespace qccl::tools {
namespace {

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

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

// glibc 2.36 declares pidfd_open() for C only.
os::Fd watch_process(pid_t pid) { return os::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

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

}  // namespace qccl::tools
