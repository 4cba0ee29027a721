#include "base/clock.h"

namespace qccl {

TimePoint SteadyClock::now() const { return std::chrono::steady_clock::now(); }

}  // namespace qccl
