#include "os/process.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <set>

#include "os/fd.h"

namespace qccl::os {
namespace {

TEST(Process, knows_its_id_host_and_state) {
  EXPECT_EQ(process_id(), ::getpid());
  EXPECT_FALSE(host_name().empty());
  EXPECT_EQ(process_state(process_id()), 'R');
  EXPECT_EQ(process_state(-1), '?');
}

TEST(Process, boot_id_is_a_uuid_and_stays) {
  const std::string id = boot_id();
  EXPECT_EQ(id.size(), 36u);
  EXPECT_EQ(id[8], '-');
  EXPECT_EQ(boot_id(), id);
}

TEST(Process, available_cpus_follow_the_affinity_mask) {
  int cpus = 0;
  int bound_to = 0;
  int first = -1;
  std::thread pinned([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    bound_to = ::sched_getcpu();
    CPU_SET(static_cast<unsigned>(bound_to), &one);
    if (::sched_setaffinity(0, sizeof(one), &one) == 0) cpus = available_cpus();
    first = first_available_cpu();
  });
  pinned.join();
  EXPECT_EQ(cpus, 1);
  EXPECT_EQ(first, bound_to);
  EXPECT_GE(first_available_cpu(), 0);
  EXPECT_GE(available_cpus(), 1);
  EXPECT_GE(online_cpus(), available_cpus());
  EXPECT_FALSE(allowed_cpus().empty());
}

TEST(Process, nonces_do_not_repeat) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random_nonce());
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(Limits, open_files_follow_the_processes_limit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = 123;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  const Limit seen = open_files_limit();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(seen.soft, 123u);
  EXPECT_GE(seen.hard, seen.soft);
}

TEST(Limits, open_file_count_sees_a_new_descriptor) {
  const auto before = open_file_count();
  const auto one_more = create_eventfd();
  ASSERT_TRUE(one_more.ok());
  EXPECT_EQ(open_file_count(), before + 1);
}

TEST(Limits, system_value_is_the_first_line_or_nothing) {
  EXPECT_TRUE(system_value("/proc/version").value_or("").starts_with("Linux"));
  EXPECT_EQ(system_value("/proc/no-such-file"), std::nullopt);
}

TEST(Limits, free_bytes_of_a_missing_folder_is_zero) { EXPECT_EQ(free_bytes("/no/such/folder"), 0u); }

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
