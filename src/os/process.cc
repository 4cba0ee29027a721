#include "os/process.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <memory>
#include <utility>

#include "base/log.h"

namespace qccl::os {
namespace {

// The cores this process may run on. None if they are more than fit cpu_set_t, 1024.
cpu_set_t affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof(set), &set);
  return set;
}

Limit limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return {};
  const auto value = [](rlim_t bound) { return bound == RLIM_INFINITY ? kUnlimited : std::uint64_t{bound}; };
  return {value(limit.rlim_cur), value(limit.rlim_max)};
}

}  // namespace

int process_id() { return static_cast<int>(::getpid()); }

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

std::string boot_id() { return system_value("/proc/sys/kernel/random/boot_id").value_or(""); }

std::string network_namespace() {
  std::array<char, 64> text{};
  const auto bytes = ::readlink("/proc/self/ns/net", text.data(), text.size());
  return bytes > 0 ? std::string(text.data(), static_cast<std::size_t>(bytes)) : std::string();
}

// "PID (NAME) STATE PPID ...", where NAME may hold anything.
char process_state(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '?' : text[name_end + 2];
}

std::optional<std::uint32_t> process_user(int process) {
  struct stat folder {};
  if (::stat(("/proc/" + std::to_string(process)).c_str(), &folder) != 0) return std::nullopt;
  return folder.st_uid;
}

std::uint64_t random_nonce() {
  std::uint64_t nonce = 0;
  ssize_t got = 0;
  do got = ::getrandom(&nonce, sizeof(nonce), 0);
  while (got < 0 && errno == EINTR);
  QCCL_CHECK(got == sizeof(nonce));  // up to 256 bytes always come complete (getrandom(2))
  return nonce;
}

// ---- cores

int available_cpus() {
  const cpu_set_t set = affinity();
  return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : online_cpus();
}

int first_available_cpu() {
  const cpu_set_t set = affinity();
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) return cpu;
  }
  return 0;
}

std::string allowed_cpus() {
  const std::string key = "Cpus_allowed_list:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(key)) continue;
    const auto begin = line.find_first_not_of(" \t", key.size());
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

int online_cpus() { return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))); }

// ---- limits

Limit open_files_limit() { return limit_of(RLIMIT_NOFILE); }
Limit locked_memory_limit() { return limit_of(RLIMIT_MEMLOCK); }
Limit file_size_limit() { return limit_of(RLIMIT_FSIZE); }

// Does not use std::filesystem, whose iterator terminates the process if it runs out of memory.
std::uint64_t open_file_count() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  std::uint64_t count = 0;
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    if (entry->d_name[0] != '.') ++count;
  }
  return count;
}

std::uint64_t spare_files() {
  const std::uint64_t limit = open_files_limit().soft;
  return limit - std::min(limit, open_file_count());
}

std::uint64_t free_bytes(const char* folder) {
  struct statvfs space {};
  if (::statvfs(folder, &space) != 0) return 0;
  return std::uint64_t{space.f_bavail} * space.f_frsize;
}

std::optional<std::string> system_value(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// ---- threads

// A thread inherits its creator's signal mask: all signals are blocked before the creation, not after it.
std::thread start_thread(const char* name, std::function<void()> body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto restore = [](const sigset_t* mask) { ::pthread_sigmask(SIG_SETMASK, mask, nullptr); };
  const std::unique_ptr<const sigset_t, decltype(restore)> at_the_end(&before, restore);
  std::thread thread(std::move(body));
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

void pause(Nanoseconds duration) { std::this_thread::sleep_for(duration); }

}  // namespace qccl::os
