#include "os/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "base/text.h"

namespace qccl::os {
namespace {

constexpr const char* kName = "qccl-key";

// Reads from the start, whatever the descriptor's position is: several processes may share it.
Result<std::string> read_all(const Fd& fd, const std::string& what, std::size_t most_bytes) {
  std::string content;
  content.reserve(most_bytes + 1);  // never moves, so that no copy stays behind
  content.resize(most_bytes + 1);
  std::size_t filled = 0;
  while (filled <= most_bytes) {
    const ssize_t got = ::pread(fd.get(), content.data() + filled, content.size() - filled, static_cast<off_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_failure(ErrorKind::invalid_argument, "can't read " + what, errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  const bool is_too_long = filled > most_bytes;
  ::explicit_bzero(content.data() + (is_too_long ? 0 : filled), content.size() - (is_too_long ? 0 : filled));
  if (is_too_long) {
    return Failure(ErrorKind::invalid_argument, fmt::format("{} has more than {} bytes", what, most_bytes));
  }
  content.resize(filled);
  return content;
}

// Whether the number belongs to a secret that pass_secret() made, and not to a file that was opened since.
bool is_passed_secret(int fd) {
  std::array<char, 64> target{};
  const auto link = fmt::format("/proc/self/fd/{}", fd);
  const ssize_t bytes = ::readlink(link.c_str(), target.data(), target.size());
  return bytes > 0 && std::string_view(target.data(), static_cast<std::size_t>(bytes)).starts_with("/memfd:qccl-key");
}

}  // namespace

Result<std::string> read_secret_file(const std::string& path, std::size_t most_bytes) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return os_failure(ErrorKind::invalid_argument, "can't open " + path, errno);
  return read_all(fd, path, most_bytes);
}

bool is_readable_by_others(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRGRP | S_IROTH)) != 0;
}

Status write_secret_file(const std::string& path, const std::string& content) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!fd.valid()) return os_failure(ErrorKind::misuse, "can't make " + path, errno);
  if (::write(fd.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size())) return {};
  const int why = errno;
  ::unlink(path.c_str());
  return os_failure("can't write " + path, why);
}

Result<PassedSecret> pass_secret(const std::string& content) {
  PassedSecret passed{Fd(::memfd_create(kName, MFD_ALLOW_SEALING)), ""};
  if (!passed.fd.valid()) return os_failure("can't make a memory file for the key", errno);
  if (::write(passed.fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    return os_failure("can't write to the key's memory file", errno);
  }
  // Every child can read it, and none may change it for the others.
  if (::fcntl(passed.fd.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) != 0) {
    return os_failure("can't seal the key's memory file", errno);
  }
  passed.location = fmt::format("{}@{}", passed.fd.get(), ::getpid());
  return passed;
}

Result<std::string> read_inherited_secret(const std::string& location, std::size_t most_bytes) {
  const auto at = location.find('@');
  const auto number = parse_number<int>(std::string_view(location).substr(0, at));
  const auto maker = parse_number<int>(at == std::string::npos ? "" : std::string_view(location).substr(at + 1));
  if (!number || !maker || *number < 0 || *maker < 1) {
    return Failure(ErrorKind::invalid_argument, fmt::format("\"{}\" is no DESCRIPTOR@PROCESS", printable(location)));
  }
  const std::string path = is_passed_secret(*number) ? fmt::format("/proc/self/fd/{}", *number)
                                                     : fmt::format("/proc/{}/fd/{}", *maker, *number);
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.valid() && is_passed_secret(fd.get())) return read_all(fd, "the inherited key", most_bytes);
  return Failure(ErrorKind::misuse,
                 fmt::format("neither this process nor process {}, which made the key, has it in descriptor {}: it "
                             "belongs to a job that has ended, or a program in between closed it; unset the variable "
                             "or set QCCL_KEY_FILE",
                             *maker, *number));
}

}  // namespace qccl::os
