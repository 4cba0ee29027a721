#include "os/fd.h"

#include <unistd.h>

namespace qccl::os {

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

}  // namespace qccl::os
