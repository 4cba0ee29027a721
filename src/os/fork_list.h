// Descriptors that a forked child must not keep (a named exception to "no mutable globals").
//
// A DataLoader's worker inherits its parent's sockets; if the parent then dies, peers would not see end of file while
// the child lives. A pthread_atfork child handler closes the listed descriptors. The handler is async-signal-safe: it
// uses a fixed table of atomics and no locks.
#pragma once

#include <cstdint>

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

}  // namespace qccl::os
