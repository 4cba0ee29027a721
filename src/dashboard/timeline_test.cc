#include "dashboard/timeline.h"

#include <gtest/gtest.h>

namespace qccl::dashboard {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kBegin = 1'700'000'000'000 * kMillisecond;

Stroke stroke(double posted_ms, double ended_ms, std::uint8_t kind = 0) {
  const auto at = [](double ms) { return kBegin + static_cast<std::int64_t>(ms * kMillisecond); };
  return {.posted = at(posted_ms), .started = at(posted_ms), .ended = at(ended_ms), .kind = kind};
}

// The share of the time from kBegin on that the level's bins hold, in milliseconds.
double busy_ms(const Timeline& timeline, std::size_t level, double to_ms) {
  const std::int64_t width = Timeline::width_ns(level);
  double sum = 0;
  for (std::int64_t i = kBegin / width; i <= (kBegin + static_cast<std::int64_t>(to_ms * kMillisecond)) / width; ++i) {
    sum += timeline.bin(level, i).busy * static_cast<double>(width) / kMillisecond;
  }
  return sum;
}

TEST(Timeline, every_level_holds_the_time_of_all_operations) {
  Timeline timeline(10);
  double expected = 0;
  for (int i = 0; i < 100; ++i) {
    timeline.add(stroke(7.3 * i, 7.3 * i + 0.1 * (i % 40)));
    expected += 0.1 * (i % 40);
  }
  for (std::size_t level = 0; level < Timeline::kLevels; ++level) {
    EXPECT_NEAR(busy_ms(timeline, level, 800), expected, 1e-3 * expected) << "level " << level;
  }
}

TEST(Timeline, the_kind_that_takes_most_of_a_bin_names_it) {
  Timeline timeline(10);
  timeline.add(stroke(0, 0.1, 1));
  timeline.add(stroke(0.1, 0.7, 2));
  timeline.add(stroke(0.8, 0.9, 3));
  EXPECT_EQ(timeline.bin(0, kBegin / kMillisecond).kind, 2);
}

TEST(Timeline, operations_come_one_by_one_while_they_are_kept_and_few) {
  Timeline timeline(50);
  for (int i = 0; i < 50; ++i) timeline.add(stroke(10 * i, 10 * i + 5));
  const Span all{kBegin, kBegin + 1000 * kMillisecond};
  ASSERT_TRUE(timeline.strokes(all, 50));
  EXPECT_EQ(timeline.strokes(all, 50)->size(), 50U);
  EXPECT_FALSE(timeline.strokes(all, 49));
  EXPECT_EQ(timeline.strokes({kBegin + 102 * kMillisecond, kBegin + 111 * kMillisecond}, 50)->size(), 2U);
  timeline.add(stroke(500, 505));  // the first makes room
  EXPECT_FALSE(timeline.strokes(all, 100));
  EXPECT_TRUE(timeline.strokes({kBegin + 6 * kMillisecond, kBegin + 1000 * kMillisecond}, 100));
}

TEST(Timeline, old_bins_make_room_and_coarser_levels_reach_further_back) {
  Timeline timeline(1);
  timeline.add(stroke(0, 1));
  timeline.add(stroke(3000, 3001));  // beyond the finest level's 2048 ms
  EXPECT_FALSE(timeline.reaches(0, kBegin));
  EXPECT_TRUE(timeline.reaches(1, kBegin));
  EXPECT_EQ(timeline.bin(0, kBegin / kMillisecond).busy, 0);
  EXPECT_GT(timeline.bin(1, kBegin / Timeline::width_ns(1)).busy, 0.2);
  EXPECT_EQ(timeline.bin(0, (kBegin + 3000 * kMillisecond - Timeline::kBinsKept * kMillisecond) / kMillisecond).busy, 0)
      << "not an older one's";
}

TEST(Timeline, an_operation_longer_than_a_level_fills_what_the_level_has) {
  Timeline timeline(1);
  timeline.add(stroke(0, 10'000));
  const std::int64_t last = (kBegin + 9'999 * kMillisecond) / kMillisecond;
  EXPECT_NEAR(timeline.bin(0, last).busy, 1, 1e-3);
  EXPECT_NEAR(timeline.bin(0, last - Timeline::kBinsKept + 2).busy, 1, 1e-3);
  EXPECT_EQ(timeline.bin(0, last - Timeline::kBinsKept).busy, 0);
  EXPECT_FALSE(timeline.reaches(0, kBegin)) << "its begin is in no bin of this level";
}

TEST(Timeline, times_before_1970_and_ends_before_begins_do_no_harm) {
  Timeline timeline(3);
  timeline.add({.posted = -5 * kMillisecond, .started = -5 * kMillisecond, .ended = -1});
  timeline.add({.posted = 5 * kMillisecond, .started = 5 * kMillisecond, .ended = 2 * kMillisecond});
  EXPECT_GT(timeline.bin(0, 2).busy, 0);
}

}  // namespace
}  // namespace qccl::dashboard
