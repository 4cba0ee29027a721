// Which ranks are near each other.
#pragma once

#include "base/clock.h"

namespace qccl {

// The round trip from which on two ranks are distant.
inline constexpr Nanoseconds kDistantRoundTrip = std::chrono::milliseconds(1);

}  // namespace qccl
