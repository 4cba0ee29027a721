// torch's monitored barrier: rank 0 receives from every rank and answers all of them, or names the missing ranks. Its
// error messages have the wording that torch's programs know from other backends.
#pragma once

#include <chrono>
#include <optional>

#include "qccl/communicator.h"

namespace qccl::torch_binding {

// Collective over the group. Every rank passes the same `tag`; no message of the group and no other barrier may use it.
// Throws Error(deadline_exceeded). On rank 0 it names the first rank that did not arrive in time, or, with
// `wait_all_ranks`, all of them; on the other ranks it says that rank 0 did not answer. The group is then lost, as
// after every missed deadline, except with a timeout of 0. Without a timeout, the group's timeout applies.
void monitored_barrier(Communicator& group, int tag, std::optional<std::chrono::milliseconds> timeout,
                       bool wait_all_ranks);

}  // namespace qccl::torch_binding
