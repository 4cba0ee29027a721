#include "os/fd.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

namespace qccl::os {
namespace {

ErrorKind kind_of(int error_number) {
  switch (error_number) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN: return ErrorKind::peer_lost;
    case ETIMEDOUT: return ErrorKind::deadline_exceeded;
    case EINVAL:
    case EADDRNOTAVAIL: return ErrorKind::invalid_argument;
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
    case EOPNOTSUPP:
    case ENOSYS: return ErrorKind::unsupported;
    case EBADF: return ErrorKind::misuse;
    default: return ErrorKind::resource_exhausted;
  }
}

constexpr int kCapacity = 65536;
constexpr int kBitsPerWord = 64;

// Bit n of the table: descriptor n is listed. All operations are relaxed: a bit says nothing about other memory, and
// the child after fork() has a single thread.
constinit std::array<std::atomic<std::uint64_t>, kCapacity / kBitsPerWord> listed{};
constinit std::atomic<std::uint32_t> generation{0};
constinit std::atomic<bool> handler_installed{false};

void close_listed_in_child() {
  bool inherited_any = false;
  for (int word = 0; word < kCapacity / kBitsPerWord; ++word) {
    auto bits = listed[word].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) {
      ::close(word * kBitsPerWord + std::countr_zero(bits));
      inherited_any = true;
    }
  }
  if (inherited_any) generation.fetch_add(1, std::memory_order_relaxed);
}

bool fits(int fd) { return fd >= 0 && fd < kCapacity; }
std::uint64_t bit_of(int fd) { return std::uint64_t{1} << (fd % kBitsPerWord); }

void add_to_fork_list(int fd) {
  if (!fits(fd)) return;
  if (!handler_installed.load(std::memory_order_relaxed) && !handler_installed.exchange(true)) {
    ::pthread_atfork(nullptr, nullptr, close_listed_in_child);
  }
  listed[fd / kBitsPerWord].fetch_or(bit_of(fd), std::memory_order_relaxed);
}

}  // namespace

std::string error_text(int error_number) {
  const char* words = ::strerrordesc_np(error_number);
  return fmt::format("{} (errno {})", words != nullptr ? words : "unknown error", error_number);
}

Failure os_failure(const std::string& what, int error_number) {
  return os_failure(kind_of(error_number), what, error_number);
}

Failure os_failure(ErrorKind kind, const std::string& what, int error_number) {
  Failure failure(kind, what + ": " + error_text(error_number));
  failure.info().os_error = error_number;
  return failure;
}

void remove_from_fork_list(int fd) {
  if (fits(fd)) listed[fd / kBitsPerWord].fetch_and(~bit_of(fd), std::memory_order_relaxed);
}

std::uint32_t fork_generation() { return generation.load(std::memory_order_relaxed); }

Fd::Fd(int fd) : fd_(fd) {
  if (fd >= 0) add_to_fork_list(fd);
}

void Fd::reset() {
  const bool not_ours = inherited();
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || not_ours) return;
  // Remove it from the list first: once closed, the number may belong to another thread's descriptor.
  remove_from_fork_list(fd);
  ::close(fd);
}

Result<Fd> create_eventfd() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return os_failure("can't create an eventfd", errno);
  return fd;
}

void ring_eventfd(const Fd& fd) {
  if (fd.inherited()) return;
  const int saved = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(fd.get(), &one, sizeof(one));
  errno = saved;
}

bool drain_eventfd(const Fd& fd) {
  std::uint64_t rung = 0;
  return ::read(fd.get(), &rung, sizeof(rung)) == sizeof(rung);
}

}  // namespace qccl::os
