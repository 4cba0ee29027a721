#include "engine/state/group_table.h"

#include <gtest/gtest.h>

namespace qccl::engine {
namespace {

TEST(ClosedGroups, forget_the_oldest_of_more_than_1024) {
  constexpr std::uint64_t kRemembered = 1024;
  ClosedGroups closed;
  for (std::uint64_t id = 1; id <= kRemembered; ++id) closed.add(id);
  closed.add(kRemembered);  // known already
  EXPECT_TRUE(closed.contains(1));
  EXPECT_TRUE(closed.contains(kRemembered));
  EXPECT_FALSE(closed.contains(kRemembered + 1));
  for (std::uint64_t id = kRemembered + 1; id <= 3 * kRemembered; ++id) {
    closed.add(id);
    EXPECT_TRUE(closed.contains(id));
    EXPECT_TRUE(closed.contains(id - kRemembered + 1));
    EXPECT_FALSE(closed.contains(id - kRemembered)) << id;
  }
}

}  // namespace
}  // namespace qccl::engine
