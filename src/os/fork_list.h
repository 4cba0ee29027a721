// Descriptors that a forked child must not keep (a named exception to "no mutable globals").
//
// A DataLoader's worker inherits its parent's sockets; if the parent then dies, peers would not
// see end of file while the child lives. A pthread_atfork child handler closes what is listed.
// Only async-signal-safe work happens in the handler: a fixed table of atomics, no locks.
#pragma once

#include <cstdint>

namespace qccl::os {

// Lists `fd` until remove_from_fork_list. Thread-safe. If the table (65536 entries, indexed by
// descriptor) can't hold it, does nothing.
void add_to_fork_list(int fd);
void remove_from_fork_list(int fd);

// How many forks with listed descriptors lie between this process and the first of its ancestors.
// What was opened in an earlier generation is closed in this one. Cheap.
std::uint32_t fork_generation();

// What an object keeps to know its copy in a forked child: there its threads do not exist and its
// descriptors are closed. The child may make objects of its own.
class ForkMark {
 public:
  // The object was made by an ancestor of this process.
  bool inherited() const { return generation_ != fork_generation(); }

 private:
  std::uint32_t generation_ = fork_generation();  // of the process that made it
};

}  // namespace qccl::os
