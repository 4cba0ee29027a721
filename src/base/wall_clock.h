// The time of day, for contents of files. Never for durations: it may jump.
#pragma once

#include "base/clock.h"

namespace qccl {

// Since 1970, in UTC without leap seconds.
Nanoseconds time_of_day();

}  // namespace qccl
