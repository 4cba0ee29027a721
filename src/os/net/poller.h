// Sleeps until one of many descriptors is ready: epoll, with an eventfd for wake().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"

namespace qccl::os {

// wake() may be called by any thread, the rest by one thread at a time.
class Poller {
 public:
  static Result<Poller> create();

  // Watches `fd` for reading, and for writing if `writable`. Level-triggered. `token` comes back in Ready. Watching it
  // again changes both.
  Status watch(int fd, std::uint64_t token, bool writable = false);
  // The same for writing only: incoming data stays in the socket.
  Status watch_writable(int fd, std::uint64_t token);
  void forget(int fd);

  struct Ready {
    std::uint64_t token;
    bool readable;  // or closed, or failed: a read tells
    bool writable;
  };
  // Waits until something is ready, wake() is called or `timeout` passes (finer than a millisecond where the kernel has
  // epoll_pwait2; zero polls). The span is valid until the next call; it is empty on timeout and on wake().
  std::span<const Ready> wait(Nanoseconds timeout);

  // Lets another poller watch this one: readable when wait() would return at once.
  int descriptor() const { return epoll_.get(); }

  // Ends the wait() in progress or the next one. Async-signal-safe.
  void wake() { ring_eventfd(wake_); }

 private:
  Status watch_events(int fd, std::uint64_t token, std::uint32_t events);

  Fd epoll_;
  Fd wake_;
  std::vector<Ready> ready_;
  bool has_pwait2_ = true;
};

}  // namespace qccl::os
