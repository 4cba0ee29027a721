// torch's monitored barrier: rank 0 hears from every rank and answers all of them, or says who did not come. Its words
// are those that torch's programs know from other backends.
#pragma once

#include <chrono>
#include <optional>

#include "qccl/communicator.h"

namespace qccl::torch_binding {

// Collective over the group; every rank gives the same `tag`, no message of the group has it, and each barrier has its
// own. Throws Error(deadline_exceeded) on rank 0 naming the first rank that did not come in time, or, with
// `wait_all_ranks`, all of them, and on the others that rank 0 did not answer. The group is lost then, as after every
// missed deadline; not if rank 0 had no time at all (a timeout of 0). Without a timeout the group's holds.
void monitored_barrier(Communicator& group, int tag, std::optional<std::chrono::milliseconds> timeout,
                       bool wait_all_ranks);

}  // namespace qccl::torch_binding
