#include "codec/geometry.h"

#include <numeric>

#include "gtest/gtest.h"

namespace qccl {
namespace {

TEST(Geometry, chunks_cover_every_element_once_in_order) {
  for (const std::uint64_t count : {0u, 1u, 63u, 64u, 65u, 1000u, 4096u, 100003u}) {
    for (int world = 1; world <= 33; ++world) {
      for (const std::uint32_t bucket_size : {1u, 7u, 64u, 1000u, 1024u, 65535u, 65536u}) {
        const auto ranges = chunk_ranges(count, world, bucket_size);
        ASSERT_EQ(ranges.size(), static_cast<std::size_t>(world));
        std::uint64_t next = 0;
        for (const Range& range : ranges) {
          ASSERT_EQ(range.begin, next);
          next += range.count;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(Geometry, chunks_begin_on_buckets_and_64_elements_and_only_the_last_non_empty_one_is_short) {
  for (const std::uint32_t bucket_size : {1u, 7u, 100u, 1024u}) {
    const std::uint64_t unit = std::lcm<std::uint64_t>(bucket_size, 64);
    const std::uint64_t count = 100003;
    for (const int world : {2, 3, 8, 33}) {
      const auto ranges = chunk_ranges(count, world, bucket_size);
      const std::uint64_t share =
          ((count + static_cast<std::uint64_t>(world) - 1) / static_cast<std::uint64_t>(world) + unit - 1) / unit *
          unit;
      for (const Range& range : ranges) {
        if (range.begin + range.count < count) {
          EXPECT_EQ(range.count, share);
          EXPECT_EQ(range.begin % unit, 0u);
        }
      }
    }
  }
}

TEST(Geometry, late_ranks_may_own_nothing) {
  EXPECT_EQ(chunk_ranges(100, 4, 64), (std::vector<Range>{{0, 64}, {64, 36}, {100, 0}, {100, 0}}));
}

TEST(Geometry, counts_near_the_largest_do_not_overflow) {
  const std::uint64_t most = UINT64_MAX;
  EXPECT_EQ(chunk_ranges(most, 1, 65535), (std::vector<Range>{{0, most}}));
  const auto halves = chunk_ranges(most, 2, 1);
  EXPECT_EQ(halves[0].count, std::uint64_t{1} << 63);
  EXPECT_EQ(halves[1].count, most - halves[0].count);
}

TEST(Geometry, slices_cover_a_chunk_and_the_last_is_shorter) {
  EXPECT_EQ(slice_count(0, 10), 0u);
  EXPECT_EQ(slice_count(10, 10), 1u);
  EXPECT_EQ(slice_count(11, 10), 2u);
  EXPECT_EQ(slice_count(UINT64_MAX, 2), std::uint64_t{1} << 63);
  EXPECT_EQ(slice_range(25, 10, 0), (Range{0, 10}));
  EXPECT_EQ(slice_range(25, 10, 2), (Range{20, 5}));
  EXPECT_EQ(slice_range(25, 10, 3), (Range{25, 0}));
  EXPECT_EQ(slice_range(0, 10, 0), (Range{0, 0}));
}

}  // namespace
}  // namespace qccl
