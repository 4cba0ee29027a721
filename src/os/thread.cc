#include "os/thread.h"

#include <pthread.h>

#include <csignal>
#include <utility>

namespace qccl::os {

// A thread inherits its creator's mask: block all around the creation, not after it.
std::thread start_thread(const char* name, std::function<void()> body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

void pause(Nanoseconds duration) { std::this_thread::sleep_for(duration); }

}  // namespace qccl::os
