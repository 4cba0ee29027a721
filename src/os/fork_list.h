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

// True in a process that was forked after this library was loaded in its parent: everything
// that talks to peers is off limits there. Cheap.
bool in_forked_child();

}  // namespace qccl::os
