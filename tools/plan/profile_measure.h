// Measures what a profile says (src/plan/cost/profile.h): how fast this machine copies, adds and encodes,
// and what links cost.
#pragma once

#include <qccl/qccl.h>

#include "plan/cost/profile.h"

namespace qccl::tools {

// Memory, codecs, and links inside a host, between two threads that act as ranks; takes some
// seconds. What it says of the wire's processors is loopback's. Throws qccl::Error.
plan::Profile measure_machine();

// The wire between rank 0 and the first rank on another host; nothing if there is none. Collective;
// only rank 0's profile changes. Throws qccl::Error.
void measure_wire(Communicator& world, plan::Profile& profile);

}  // namespace qccl::tools
