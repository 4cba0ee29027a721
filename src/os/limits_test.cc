#include "os/limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "os/memory.h"
#include "os/process.h"

namespace qccl::os {
namespace {

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

TEST(Limits, cores_of_the_host_are_no_fewer_than_those_allowed) {
  EXPECT_GE(online_cpus(), available_cpus());
  EXPECT_FALSE(allowed_cpus().empty());
}

TEST(Limits, system_value_is_the_first_line_or_nothing) {
  const auto version = system_value("/proc/version");
  ASSERT_TRUE(version.has_value());
  EXPECT_EQ(version->find("Linux"), 0u);
  EXPECT_EQ(system_value("/proc/no-such-file"), std::nullopt);
}

TEST(Limits, free_bytes_of_a_missing_folder_is_zero) { EXPECT_EQ(free_bytes("/no/such/folder"), 0u); }

}  // namespace
}  // namespace qccl::os
