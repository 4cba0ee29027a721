#include "os/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"
#include "os/fd.h"

namespace qccl::os {

int process_id() { return static_cast<int>(::getpid()); }

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

namespace {

// The beginning of a file of /proc; empty if it cannot be read.
std::string read_beginning(const char* path) {
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  std::array<char, 256> text{};
  const auto bytes = ::read(file.get(), text.data(), text.size());
  return bytes > 0 ? std::string(text.data(), static_cast<std::size_t>(bytes)) : std::string();
}

}  // namespace

std::string boot_id() {
  std::string id = read_beginning("/proc/sys/kernel/random/boot_id");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

std::string network_namespace() {
  std::array<char, 64> text{};
  const auto bytes = ::readlink("/proc/self/ns/net", text.data(), text.size());
  return bytes > 0 ? std::string(text.data(), static_cast<std::size_t>(bytes)) : std::string();
}

int available_cpus() {
  // More than 1024 cores do not fit cpu_set_t: the call fails with EINVAL and the number of online cores is used
  // instead.
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

int first_available_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 0;
  int cpu = 0;
  while (cpu + 1 < CPU_SETSIZE && !CPU_ISSET(cpu, &set)) ++cpu;
  return cpu;
}

// "PID (NAME) STATE PPID ...", where NAME may hold anything.
char process_state(int process) {
  const std::string text = read_beginning(("/proc/" + std::to_string(process) + "/stat").c_str());
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

}  // namespace qccl::os
