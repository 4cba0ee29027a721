// Threads of the library's own inside someone else's program.
#pragma once

#include <functional>
#include <thread>

#include "base/clock.h"

namespace qccl::os {

// Starts a thread that takes no signals (they stay the program's) and shows as `name` (at most 15
// characters) in ps and debuggers. The owner joins it; in a forked child, where it does not
// exist, the owner detaches it instead (see ForkMark).
std::thread start_thread(const char* name, std::function<void()> body);

// Lets this thread rest before it tries something again that gives no event to wait for.
void pause(Nanoseconds duration);

}  // namespace qccl::os
