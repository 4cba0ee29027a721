#include "tools/run/launcher.h"

#include <gtest/gtest.h>

namespace qccl::tools {
namespace {

using Cores = std::vector<int>;

TEST(Cores, each_core_goes_to_one_rank_in_equal_shares) {
  const Cores all = {0, 4, 1, 5, 2, 6, 3, 7};
  EXPECT_EQ(share_of_cores(all, 0, 2), (Cores{0, 4, 1, 5}));
  EXPECT_EQ(share_of_cores(all, 1, 2), (Cores{2, 6, 3, 7}));
  Cores given;
  for (int rank = 0; rank < 3; ++rank) {
    const Cores share = share_of_cores(all, rank, 3);
    EXPECT_GE(share.size(), 2u);
    given.insert(given.end(), share.begin(), share.end());
  }
  EXPECT_EQ(given, all);
}

TEST(Cores, ranks_share_cores_if_there_are_fewer_cores) {
  EXPECT_EQ(share_of_cores({2, 3}, 2, 5), Cores{2});
  EXPECT_EQ(share_of_cores({2, 3}, 3, 5), Cores{3});
  EXPECT_EQ(share_of_cores({}, 0, 1), Cores{});
}

TEST(Cores, this_process_has_usable_cores) { EXPECT_FALSE(usable_cores().empty()); }

}  // namespace
}  // namespace qccl::tools
