// Random bytes: the same on every instruction set and in every slicing, and as random as rounding needs.
#include "kernels/lanes/random.h"

#include <array>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"

namespace qccl::kernels {
namespace {

using ByteVector = std::vector<std::uint8_t>;

ByteVector bytes_of(const RandomStream& stream, std::size_t n) {
  ByteVector bytes(n + 1, 0xA5);
  random_bytes(stream, n, bytes.data());
  EXPECT_EQ(bytes.back(), 0xA5);
  bytes.pop_back();
  return bytes;
}

// Hashed independently in another language, from the definition.
TEST(Random, golden_bytes) {
  on_every_simd([&] {
    EXPECT_EQ(bytes_of({.key = 0}, 8), (ByteVector{0x55, 0x30, 0x00, 0x2A, 0xDD, 0x06, 0x02, 0x24}));
    EXPECT_EQ(bytes_of({.key = 0x0123456789ABCDEF, .first_element = 5}, 8),
              (ByteVector{0x6C, 0xDB, 0x7A, 0xA6, 0x90, 0x98, 0x1F, 0x0F}));
    EXPECT_EQ(bytes_of({.key = 7, .first_element = (std::uint64_t{1} << 34) - 3}, 8),
              (ByteVector{0xE4, 0xBC, 0x8A, 0x10, 0x20, 0x8B, 0x7B, 0x3B}));
  });
}

TEST(Random, every_target_equals_the_reference_at_every_index_and_length) {
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{67}, std::uint64_t{1000001},
                                    (std::uint64_t{1} << 34) - 150, (std::uint64_t{1} << 50) - 2}) {
    for (const std::size_t n : {0, 1, 3, 63, 64, 65, 300, 1023, 1024, 3001}) {
      const RandomStream stream{.key = 42, .first_element = first, .rank = 2, .world = 3};
      const ByteVector expected = by_reference([&] { return bytes_of(stream, n); });
      on_every_simd([&] { ASSERT_EQ(bytes_of(stream, n), expected) << first << " " << n; });
    }
  }
}

// The sum over byte values of (count - expected)^2 / expected, which has the mean 255 and a deviation of 22.6.
double chi_square(const ByteVector& bytes) {
  std::array<double, 256> counts{};
  for (const std::uint8_t byte : bytes) ++counts[byte];
  const double expected = static_cast<double>(bytes.size()) / 256;
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

double correlation(const ByteVector& a, const ByteVector& b, std::size_t shift) {
  double sum = 0;
  const std::size_t n = a.size() - shift;
  for (std::size_t i = 0; i < n; ++i) sum += (a[i] - 127.5) * (b[i + shift] - 127.5);
  return sum / static_cast<double>(n) / ((65536.0 - 1) / 12);
}

TEST(Random, bytes_are_uniform_over_elements_and_over_keys) {
  constexpr std::size_t kCount = 1 << 18;
  for (std::uint64_t key = 0; key < 8; ++key) EXPECT_NEAR(chi_square(bytes_of({.key = key}, kCount)), 255, 5 * 22.6);
  ByteVector over_keys;
  for (std::uint64_t key = 0; key < kCount; ++key) over_keys.push_back(reference::random_byte({.key = key}, 77));
  EXPECT_NEAR(chi_square(over_keys), 255, 5 * 22.6);
}

TEST(Random, neighbours_and_streams_do_not_correlate) {
  constexpr std::size_t kCount = 1 << 18;
  const double five_deviations = 5 / std::sqrt(static_cast<double>(kCount));
  const ByteVector bytes = bytes_of({.key = 1}, kCount);
  const ByteVector other_key = bytes_of({.key = 2}, kCount);
  const ByteVector other_index = bytes_of({.key = 1, .first_element = std::uint64_t{1} << 34}, kCount);
  for (std::size_t shift = 0; shift < 70; ++shift) {
    EXPECT_NEAR(correlation(bytes, bytes, shift), shift == 0 ? 1 : 0, five_deviations) << shift;
    EXPECT_NEAR(correlation(bytes, other_key, shift), 0, five_deviations) << shift;
    EXPECT_NEAR(correlation(bytes, other_index, shift), 0, five_deviations) << shift;
  }
}

TEST(Random, ranks_share_the_strata_evenly) {
  for (const std::uint32_t world : {1u, 2u, 4u, 8u, 256u}) {
    std::array<int, 256> counts{};
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const std::uint8_t byte = bytes_of({.key = 3, .first_element = 5, .rank = rank, .world = world}, 1)[0];
      ++counts[byte * world / 256];
    }
    for (std::uint32_t stratum = 0; stratum < world; ++stratum) EXPECT_EQ(counts[stratum], 1) << world;
  }
}

}  // namespace
}  // namespace qccl::kernels
