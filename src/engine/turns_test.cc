#include "engine/turns.h"

#include <gtest/gtest.h>

namespace qccl::engine {
namespace {

constexpr std::uint64_t kHalf = Turns::kRunningBytes / 2;

TEST(Turns, calls_run_together_up_to_the_limit) {
  Turns turns;
  EXPECT_TRUE(turns.post(kHalf));
  EXPECT_TRUE(turns.post(kHalf));
  EXPECT_FALSE(turns.any_waits());
  EXPECT_FALSE(turns.post(1));
  EXPECT_TRUE(turns.any_waits());
  turns.end(kHalf);
  EXPECT_TRUE(turns.begin_next(1));
  EXPECT_FALSE(turns.any_waits());
}

TEST(Turns, a_call_beyond_the_limit_runs_alone) {
  Turns turns;
  EXPECT_TRUE(turns.post(3 * Turns::kRunningBytes));
  EXPECT_FALSE(turns.post(1));
  EXPECT_FALSE(turns.begin_next(1));
  turns.end(3 * Turns::kRunningBytes);
  EXPECT_TRUE(turns.begin_next(1));
}

TEST(Turns, nobody_overtakes_one_that_waits) {
  Turns turns;
  EXPECT_TRUE(turns.post(kHalf));
  EXPECT_FALSE(turns.post(Turns::kRunningBytes));
  EXPECT_FALSE(turns.post(1)) << "there is room for it, but another was first";
  turns.end(kHalf);
  EXPECT_TRUE(turns.begin_next(Turns::kRunningBytes));
  EXPECT_FALSE(turns.begin_next(1));
  EXPECT_TRUE(turns.any_waits());
}

}  // namespace
}  // namespace qccl::engine
