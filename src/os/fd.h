// Owns one file descriptor. Every descriptor is close-on-exec and on the fork list, so that a
// forked child never keeps a peer's connection alive (see os/fork_list.h). In such a child an
// inherited Fd's descriptor is already closed, and its destructor does nothing.
#pragma once

#include <utility>

#include "os/fork_list.h"

namespace qccl::os {

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
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

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

}  // namespace qccl::os
