#include "codec/geometry.h"

#include <climits>
#include <numeric>

#include "codec/codec.h"
#include "gtest/gtest.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace qccl {
namespace {

static_assert(kMaxSliceBytes == kMaxPayloadBytes && kMaxSliceBytes == wire::kPayloadLimit);

TEST(Geometry, chunks_cover_every_element_in_order_begin_on_buckets_and_64_elements_and_only_the_last_is_short) {
  for (const std::uint64_t count : {0u, 1u, 63u, 64u, 65u, 1000u, 4096u, 100003u}) {
    for (std::uint64_t world = 1; world <= 33; ++world) {
      for (const std::uint32_t bucket_size : {1u, 7u, 64u, 100u, 1000u, 1024u, 65535u, 65536u}) {
        const std::uint64_t unit = std::lcm<std::uint64_t>(bucket_size, 64);
        const std::uint64_t share = ((count + world - 1) / world + unit - 1) / unit * unit;
        const auto ranges = chunk_ranges(count, static_cast<int>(world), bucket_size);
        ASSERT_EQ(ranges.size(), world);
        std::uint64_t next = 0;
        for (const Range& range : ranges) {
          ASSERT_EQ(range.begin, next);
          next += range.count;
          if (next < count) ASSERT_EQ(range.count, share);
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(Geometry, late_ranks_may_own_nothing) {
  EXPECT_EQ(chunk_ranges(100, 4, 64), (std::vector<Range>{{0, 64}, {64, 36}, {100, 0}, {100, 0}}));
}

TEST(Geometry, chunks_by_shares_cover_every_element_in_order_and_are_about_their_part_of_it) {
  const std::vector<std::vector<int>> lists = {{1}, {100, 100}, {0, 3}, {114, 0, 114}, {7, 0, 0, 1, 400}, {0, 0, 5, 0}};
  for (const std::uint64_t count : {0u, 1u, 63u, 64u, 65u, 1000u, 4096u, 100003u, 1u << 24}) {
    for (const std::uint32_t bucket_size : {1u, 7u, 64u, 100u, 1024u, 65535u}) {
      for (const auto& shares : lists) {
        const std::uint64_t unit = std::lcm<std::uint64_t>(bucket_size, 64);
        const double whole = std::accumulate(shares.begin(), shares.end(), 0);
        const auto ranges = chunk_ranges(count, shares, bucket_size);
        ASSERT_EQ(ranges.size(), shares.size());
        std::uint64_t next = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
          ASSERT_EQ(ranges[i].begin, next);
          next += ranges[i].count;
          if (next < count) ASSERT_EQ(next % unit, 0u);
          if (shares[i] == 0) ASSERT_EQ(ranges[i].count, 0u);
          ASSERT_NEAR(static_cast<double>(ranges[i].count), static_cast<double>(count) * shares[i] / whole,
                      2.0 * static_cast<double>(unit));
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(Geometry, tiny_counts_by_shares_have_few_owners) {
  EXPECT_EQ(chunk_ranges(1, std::vector{0, 2, 1}, 1), (std::vector<Range>{{0, 0}, {0, 1}, {1, 0}}));
  EXPECT_EQ(chunk_ranges(100, std::vector{1, 0, 1}, 1), (std::vector<Range>{{0, 64}, {64, 0}, {64, 36}}));
}

TEST(Geometry, shares_of_counts_near_the_largest_do_not_overflow) {
  const auto ranges = chunk_ranges(UINT64_MAX, std::vector{INT_MAX, 1, INT_MAX}, 1);
  EXPECT_EQ(ranges[2].begin + ranges[2].count, UINT64_MAX);
  EXPECT_NEAR(static_cast<double>(ranges[1].count), 0x1p64 / 0x1p32, 64);
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

constexpr std::size_t kTargets[] = {0, 1, 256, 4096, 65536, 100000, 262144, std::size_t{1} << 30};

TEST(Slicing, raw_slices_are_multiples_of_64_elements_within_target_and_payload) {
  for (const DataType type : {DataType::uint8, DataType::float16, DataType::float32, DataType::float64}) {
    for (const std::size_t target : kTargets) {
      const std::uint64_t elements = slice_elements(nullptr, type, target);
      EXPECT_EQ(elements % 64, 0u);
      EXPECT_GE(elements, 64u);
      EXPECT_LE(elements * element_bytes(type), std::max<std::size_t>(kMaxSliceBytes, 64 * element_bytes(type)));
      if (elements > 64) {
        EXPECT_LE(elements * element_bytes(type), target);
      }
    }
  }
  EXPECT_EQ(slice_elements(nullptr, DataType::float32, 65536), 16384u);
}

TEST(Slicing, codec_slices_are_whole_buckets_that_fit_a_payload_and_as_long_as_possible) {
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32}) {
    for (const std::uint32_t bucket_size : {1u, 2u, 7u, 8u, 64u, 1000u, 1001u, 1024u, 9001u, 65535u, 65536u}) {
      const auto codec = make_codec(minmax({.bits = bits, .bucket_size = bucket_size})).take_or_throw();
      const std::uint64_t bucket = codec->bucket_size();
      for (const std::size_t target : kTargets) {
        const std::uint64_t elements = slice_elements(codec.get(), DataType::float32, target);
        ASSERT_GE(elements, bucket);
        ASSERT_EQ(elements % bucket, 0u);
        ASSERT_LE(codec->max_encoded_bytes(elements), kMaxSliceBytes) << bits << " " << bucket_size << " " << target;
        if (elements > bucket) {
          ASSERT_LE(elements * 4, target);
        }
        const std::uint64_t group = std::lcm<std::uint64_t>(bucket, 8);
        if (group * 4 <= target && codec->max_encoded_bytes(group) <= kMaxSliceBytes) {
          ASSERT_EQ(elements % 8, 0u) << bits << " " << bucket_size << " " << target;
        }
        const std::uint64_t more = elements + group;
        ASSERT_TRUE(more * 4 > target || codec->max_encoded_bytes(more) > kMaxSliceBytes)
            << bits << " " << bucket_size << " " << target << " " << elements;
      }
    }
  }
}

TEST(Slicing, examples) {
  const auto codec = make_codec(minmax({.bits = 4, .bucket_size = 1024})).take_or_throw();
  EXPECT_EQ(slice_elements(codec.get(), DataType::float32, 65536), 16384u);
  EXPECT_EQ(slice_elements(codec.get(), DataType::bfloat16, 65536), 16384u);
  // One-element buckets of 8 bits: 9 bytes each, so the payload is the limit.
  const auto single = make_codec(minmax({.bits = 8, .bucket_size = 1})).take_or_throw();
  EXPECT_EQ(slice_elements(single.get(), DataType::float32, 262144), 262144u / 9 / 8 * 8);
}

}  // namespace
}  // namespace qccl
