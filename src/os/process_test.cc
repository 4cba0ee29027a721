#include "os/process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <set>
#include <thread>

namespace qccl::os {
namespace {

TEST(Process, knows_its_id_and_host) {
  EXPECT_EQ(process_id(), ::getpid());
  EXPECT_FALSE(host_name().empty());
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
}

TEST(Process, nonces_do_not_repeat) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random_nonce());
  EXPECT_EQ(seen.size(), 1000u);
}

}  // namespace
}  // namespace qccl::os
