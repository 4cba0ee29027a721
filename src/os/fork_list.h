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

// True in a process that was forked by one with listed descriptors (or by such a child): what it
// inherited can't talk to peers any more. A process that never had any forks clean children,
// which may use the library on their own. Cheap.
bool in_forked_child();

// How many such forks lie between this process and the first of its ancestors. What was opened
// in an earlier generation is closed in this one.
std::uint32_t fork_generation();

}  // namespace qccl::os
