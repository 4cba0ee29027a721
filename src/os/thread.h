// The library's own threads inside another program.
#pragma once

#include <functional>
#include <thread>

#include "base/clock.h"

namespace qccl::os {

// Starts a thread that takes no signals (they stay with the program) and appears as `name` (at most 15 characters) in
// ps and debuggers. The owner joins it; in a forked child, where it does not exist, the owner detaches it instead (see
// ForkMark).
std::thread start_thread(const char* name, std::function<void()> body);

// Pauses this thread before a retry that has no event to wait for.
void pause(Nanoseconds duration);

}  // namespace qccl::os
