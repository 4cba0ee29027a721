// Measures the values of a profile (src/plan/cost/cost.h): how fast this machine copies, adds and
// encodes, and what links cost.
#pragma once

#include <qccl/qccl.h>

#include "plan/cost/cost.h"

namespace qccl::tools {

// Measures memory, codecs, and the links inside a host, between two threads that act as ranks. Takes
// some seconds. The processor cost of the wire is loopback's. Throws qccl::Error.
plan::Profile measure_machine();

// Measures the wire between rank 0 and the first rank on another host; does nothing if there is
// none. Collective; only ranks that take part in the measurement change `profile`. Throws qccl::Error.
void measure_wire(Communicator& world, plan::Profile& profile);

}  // namespace qccl::tools
