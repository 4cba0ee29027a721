#include "base/clock.h"

namespace qccl {

TimePoint SteadyClock::now() const { return std::chrono::steady_clock::now(); }

Nanoseconds time_of_day() { return std::chrono::system_clock::now().time_since_epoch(); }

}  // namespace qccl
