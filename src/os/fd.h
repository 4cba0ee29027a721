// Owns file descriptors, and keeps them from forked children.
//
// A DataLoader's worker inherits its parent's sockets; if the parent then died, peers would not see end of file while
// the child lives. So every descriptor is close-on-exec and on a list, and a pthread_atfork handler closes the listed
// descriptors in the child. The handler is async-signal-safe: its table is a fixed array of atomics (a named exception
// to "no mutable globals").
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"

namespace qccl::os {

// Lists `fd` until remove_from_fork_list. Thread-safe. Does nothing if the table (65536 entries, indexed by descriptor)
// cannot hold it.
void add_to_fork_list(int fd);
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

// Owns one descriptor. In a forked child the descriptor of an inherited Fd is already closed, and its destructor does
// nothing.
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
  // True in a forked child of the process that opened it: the descriptor is closed here, and its number may by now
  // belong to another file.
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
