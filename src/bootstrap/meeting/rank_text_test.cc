#include "bootstrap/meeting/rank_text.h"

#include <gtest/gtest.h>

namespace qccl::bootstrap {
namespace {

TEST(RankText, ranks_fold_into_runs) {
  EXPECT_EQ(ranks_text({2}), "rank 2");
  EXPECT_EQ(ranks_text({2, 3}), "ranks 2, 3");
  EXPECT_EQ(ranks_text({1, 2, 3, 5, 7, 8}), "ranks 1-3, 5, 7, 8");
  EXPECT_EQ(ranks_text({0, 2, 3, 4}), "ranks 0, 2-4");
}

TEST(RankText, times_are_in_seconds) { EXPECT_EQ(seconds_text(std::chrono::milliseconds(1250)), "1.2 s"); }

}  // namespace
}  // namespace qccl::bootstrap
