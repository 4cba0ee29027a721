#include "os/fd.h"

#include <unistd.h>

#include "os/fork_list.h"

namespace qccl::os {

Fd::Fd(int fd) : fd_(fd), generation_(fork_generation()) {
  if (fd >= 0) add_to_fork_list(fd);
}

bool Fd::inherited() const { return fd_ >= 0 && generation_ != fork_generation(); }

void Fd::reset() {
  const bool not_ours = inherited();
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || not_ours) return;
  // Off the list first: once closed, the number may be another thread's.
  remove_from_fork_list(fd);
  ::close(fd);
}

}  // namespace qccl::os
