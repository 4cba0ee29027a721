#include "sim/simulated_job.h"

#include <gtest/gtest.h>

namespace qccl::sim {
namespace {

TEST(Cores, ranks_of_a_machine_take_turns_in_the_order_in_which_they_came) {
  Cores cores(1, {0, 0, 0, 1});
  EXPECT_TRUE(cores.begin(2));
  EXPECT_FALSE(cores.begin(1));
  EXPECT_FALSE(cores.begin(0));
  EXPECT_FALSE(cores.begin(1));  // once is enough
  EXPECT_TRUE(cores.begin(3));   // another machine's
  EXPECT_EQ(cores.end(2), 1);
  EXPECT_FALSE(cores.begin(2));
  EXPECT_TRUE(cores.begin(1));
  EXPECT_EQ(cores.end(1), 0);
  EXPECT_TRUE(cores.begin(0));
  EXPECT_EQ(cores.end(0), 2);
  EXPECT_TRUE(cores.begin(2));
  EXPECT_EQ(cores.end(2), std::nullopt);
  EXPECT_EQ(cores.end(3), std::nullopt);
  EXPECT_TRUE(cores.begin(0));
}

TEST(Cores, a_rank_that_is_wanted_while_it_runs_comes_again_behind_those_that_wait) {
  Cores cores(2, {0, 0, 0});
  EXPECT_TRUE(cores.begin(0));
  EXPECT_TRUE(cores.begin(1));
  EXPECT_FALSE(cores.begin(0));
  EXPECT_FALSE(cores.begin(2));
  EXPECT_EQ(cores.end(0), 2);
  EXPECT_TRUE(cores.begin(2));
  EXPECT_EQ(cores.end(1), 0);
  EXPECT_TRUE(cores.begin(0));
}

}  // namespace
}  // namespace qccl::sim
