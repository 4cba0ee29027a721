#include "os/thread.h"

#include <pthread.h>

#include <csignal>
#include <memory>
#include <utility>

namespace qccl::os {

// A thread inherits its creator's signal mask: all signals are blocked before the creation, not after it.
std::thread start_thread(const char* name, std::function<void()> body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto restore = [](const sigset_t* mask) { ::pthread_sigmask(SIG_SETMASK, mask, nullptr); };
  const std::unique_ptr<const sigset_t, decltype(restore)> at_the_end(&before, restore);
  std::thread thread(std::move(body));
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

void pause(Nanoseconds duration) { std::this_thread::sleep_for(duration); }

}  // namespace qccl::os
