#include "os/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>

namespace qccl::os {
namespace {

TEST(Thread, takes_no_signals_and_leaves_its_creators_mask_alone) {
  sigset_t before, inside, after;
  sigemptyset(&inside);
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  start_thread("qccl-test", [&] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); }).join();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) {
    EXPECT_EQ(sigismember(&inside, signal), 1) << signal;
    EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal)) << signal;
  }
}

}  // namespace
}  // namespace qccl::os
