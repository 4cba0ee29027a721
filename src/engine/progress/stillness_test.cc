#include "engine/progress/stillness.h"

#include <gtest/gtest.h>

namespace qccl::engine {
namespace {

constexpr Nanoseconds kLong{100};

TimePoint at(int nanoseconds) { return TimePoint(Nanoseconds(nanoseconds)); }

TEST(Stillness, begins_with_the_first_question) {
  Stillness stillness;
  EXPECT_FALSE(stillness.has_lasted(kLong, at(5000)));
  EXPECT_FALSE(stillness.has_lasted(kLong, at(5099)));
  EXPECT_TRUE(stillness.has_lasted(kLong, at(5100)));
  EXPECT_TRUE(stillness.has_lasted(kLong, at(5200)));
}

TEST(Stillness, begins_anew_once_something_has_moved) {
  Stillness stillness;
  EXPECT_FALSE(stillness.has_lasted(kLong, at(1)));
  stillness.end();
  EXPECT_FALSE(stillness.has_lasted(kLong, at(1000)));
  EXPECT_TRUE(stillness.has_lasted(kLong, at(1100)));
}

TEST(Stillness, of_no_length_has_always_lasted) {
  Stillness stillness;
  EXPECT_TRUE(stillness.has_lasted(Nanoseconds{0}, at(7)));
}

}  // namespace
}  // namespace qccl::engine
