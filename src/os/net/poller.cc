#include "os/net/poller.h"

#include <sys/epoll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441  // the same number on every architecture; the kernel may lack it
#endif

namespace qccl::os {
namespace {

constexpr std::uint64_t kWakeToken = std::numeric_limits<std::uint64_t>::max();
constexpr int kEventsPerWait = 64;

int to_milliseconds(Nanoseconds timeout) {
  const auto rounded_up = (timeout.count() + 999'999) / 1'000'000;
  return static_cast<int>(std::min<std::int64_t>(rounded_up, std::numeric_limits<int>::max()));
}

int wait_nanoseconds(int epoll, epoll_event* events, Nanoseconds timeout) {
  const struct {
    std::int64_t seconds, nanoseconds;
  } limit{timeout.count() / 1'000'000'000, timeout.count() % 1'000'000'000};
  return static_cast<int>(::syscall(SYS_epoll_pwait2, epoll, events, kEventsPerWait, &limit, nullptr, 0));
}

}  // namespace

Result<Poller> Poller::create() {
  Poller poller;
  poller.epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!poller.epoll_.valid()) return os_failure("can't create an epoll instance", errno);
  QCCL_ASSIGN(poller.wake_, create_eventfd());
  poller.ready_.reserve(kEventsPerWait);
  QCCL_TRY(poller.watch(poller.wake_.get(), kWakeToken));
  return poller;
}

Status Poller::watch(int fd, std::uint64_t token, bool writable) {
  return watch_events(fd, token, EPOLLIN | (writable ? EPOLLOUT : 0u));
}

Status Poller::watch_writable(int fd, std::uint64_t token) { return watch_events(fd, token, EPOLLOUT); }

Status Poller::watch_events(int fd, std::uint64_t token, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = token}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return {};
  if (errno == ENOENT && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return os_failure("can't watch descriptor " + std::to_string(fd), errno);
}

void Poller::forget(int fd) {
  if (!epoll_.inherited()) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::span<const Poller::Ready> Poller::wait(Nanoseconds timeout) {
  timeout = std::max(timeout, Nanoseconds::zero());
  std::array<epoll_event, kEventsPerWait> events;
  int count = -1;
  if (has_pwait2_) {
    count = wait_nanoseconds(epoll_.get(), events.data(), timeout);
    if (count < 0 && errno == ENOSYS) has_pwait2_ = false;
  }
  if (!has_pwait2_) count = ::epoll_wait(epoll_.get(), events.data(), kEventsPerWait, to_milliseconds(timeout));
  ready_.clear();
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWakeToken) {
      drain_eventfd(wake_);
    } else {
      ready_.push_back({event.data.u64, (event.events & ~EPOLLOUT) != 0, (event.events & EPOLLOUT) != 0});
    }
  }
  return ready_;
}

}  // namespace qccl::os
