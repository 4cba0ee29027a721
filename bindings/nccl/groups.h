// Between ncclGroupStart() and ncclGroupEnd() a thread's calls are only recorded. ncclGroupEnd() makes the group's
// communicators in threads of their own, so that one thread can make several of a job, or posts the operations of all
// communicators before it waits for any.
#pragma once

#include "process.h"

namespace qccl::nccl {

// Runs the operation to its end, or records it. Both throw the failure of what they run.
void submit(Operation operation);

// What a call returns that goes on in a thread of its own: ncclInProgress, in a group ncclSuccess, and ncclGroupEnd()
// returns it.
ncclResult_t in_progress();

// Makes the communicator, or records that. `is_blocking`: else a thread of its own makes it, and the result is
// in_progress().
ncclResult_t submit(Making making, bool is_blocking);

// Makes all of them, each in a thread of its own, and throws the first failure.
void make_all(const std::vector<Making>& makings);

// The same for ncclGroupSimulateEnd(): ends the group, whose calls are never made.
void drop_group();

}  // namespace qccl::nccl
