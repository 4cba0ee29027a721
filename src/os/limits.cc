#include "os/limits.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>

namespace qccl::os {
namespace {

Limit limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return {};
  const auto value = [](rlim_t bound) { return bound == RLIM_INFINITY ? kUnlimited : std::uint64_t{bound}; };
  return {value(limit.rlim_cur), value(limit.rlim_max)};
}

}  // namespace

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

int online_cpus() { return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))); }

std::uint64_t spare_files() {
  const std::uint64_t limit = open_files_limit().soft;
  return limit - std::min(limit, open_file_count());
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

}  // namespace qccl::os
