// Owns file descriptors, keeps them from forked children, and turns the system's error numbers into failures that say
// what was tried and why it did not work. Only src/os knows errno; all other code sees text and ErrorInfo::os_error.
//
// A DataLoader's worker inherits its parent's sockets; if the parent then died, peers would not see end of file while
// the child lives. So every descriptor is close-on-exec and on a list, and a pthread_atfork handler closes the listed
// descriptors in the child. The handler is async-signal-safe: its table is a fixed array of atomics (a named exception
// to "no mutable globals"), which holds descriptors up to 65535.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"

namespace qccl::os {

// "Connection refused (errno 111)".
std::string error_text(int error_number);

// `what` is a sentence without its end, such as "can't listen on 10.0.0.1:29500". The failure reads "what: error text"
// and carries the number. Its kind is the one that a caller can react to: refused, reset or unreachable is peer_lost;
// too many descriptors, no memory or a taken port is resource_exhausted; and so on.
Failure os_failure(const std::string& what, int error_number);
Failure os_failure(ErrorKind kind, const std::string& what, int error_number);

// From now on a forked child keeps `fd`. Thread-safe.
void remove_from_fork_list(int fd);

// Number of forks with listed descriptors between this process and its first ancestor. Descriptors opened in an earlier
// generation are closed in this one. Cheap.
std::uint32_t fork_generation();

// Lets an object recognize its copy in a forked child, where its threads do not exist and its descriptors are closed.
// The child may make objects of its own.
class ForkMark {
 public:
  // The object was made by an ancestor of this process.
  bool inherited() const { return generation_ != fork_generation(); }

 private:
  std::uint32_t generation_ = fork_generation();  // of the process that made it
};

// Owns one descriptor. In a forked child an inherited Fd is closed already, and its destructor does nothing.
class Fd {
 public:
  Fd() = default;
  // Takes ownership and puts the descriptor on the fork list. -1 is "none".
  explicit Fd(int fd);
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), mark_(other.mark_) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      mark_ = other.mark_;
    }
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // True in a forked child of the process that opened it: it is closed here, and its number may be another file's now.
  bool inherited() const { return fd_ >= 0 && mark_.inherited(); }
  void reset();

 private:
  int fd_ = -1;
  ForkMark mark_;
};

// A non-blocking counter that serves as a doorbell.
Result<Fd> create_eventfd();
// Makes the eventfd readable. Async-signal-safe.
void ring_eventfd(const Fd& fd);
// Makes it unreadable again; true if it had been rung.
bool drain_eventfd(const Fd& fd);

}  // namespace qccl::os
