// The size and the bound of top-k, and damage reported as CorruptData. The selection itself and all
// instruction sets: kernels/topk/topk_test.cc.
#include <cmath>
#include <numeric>
#include <vector>

#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

constexpr double kDensities[] = {0.0002, 0.001, 0.01, 0.1, 0.5};

double squared(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0, [](double sum, double v) { return sum + v * v; });
}

TEST(TopkCodec, size_is_that_of_the_density_rounded_up_to_an_element_a_chunk) {
  for (const double density : kDensities) {
    const double kept = std::ceil(density * 4096);
    for (const std::size_t n : {1u, 1000u, 4096u, 4097u, 32768u}) {
      double floats = 0, codes = 0;
      for (std::size_t left = n; left > 0; left -= std::min<std::size_t>(left, 4096)) {
        const double k = std::ceil(kept * static_cast<double>(std::min<std::size_t>(left, 4096)) / 4096);
        floats += 4 * k + std::ceil(1.5 * k);
        codes += 4 + k + std::ceil(1.5 * k);
      }
      EXPECT_EQ(codec_of(topk({.density = density}))->max_encoded_bytes(n), floats) << density << " " << n;
      EXPECT_EQ(codec_of(topk({.density = density, .int8_values = true}))->max_encoded_bytes(n), codes)
          << density << " " << n;
    }
  }
}

TEST(TopkCodec, every_element_is_within_the_bound) {
  for (const auto& family : kernels::finite_families()) {
    for (const std::size_t n : {1u, 2u, 700u, 4096u}) {
      const std::vector<float> x = family.values(n, 2);
      const auto [low, high] = std::minmax_element(x.begin(), x.end());
      for (const bool int8_values : {false, true}) {
        for (const double density : kDensities) {
          const auto sparse = codec_of(topk({.density = density, .int8_values = int8_values}));
          const double bound = sparse->error_bound({*low, *high, std::sqrt(squared(x)) * (1 + 1e-12)});
          const std::vector<float> y = round_trip(*sparse, x);
          for (std::size_t i = 0; i < n; ++i) {
            ASSERT_LE(std::fabs(static_cast<double>(y[i]) - x[i]), bound) << family.name << " " << density;
          }
        }
      }
    }
  }
}

TEST(TopkCodec, equal_indices_are_corrupt_data) {
  const auto sparse = codec_of(topk());
  std::vector<float> target(5000);
  std::vector<std::byte> bytes = encoded(*sparse, kernels::finite_families()[0].values(target.size(), 3));
  bytes[41 * 4] = bytes[41 * 4 + 1] = bytes[41 * 4 + 2] = std::byte{0xFF};
  EXPECT_EQ(sparse->decode(bytes, target).error().kind, ErrorKind::corrupt_data);
  EXPECT_EQ(sparse->decode_add(bytes, target, target).error().kind, ErrorKind::corrupt_data);
}

TEST(TopkCodec, specifications_are_read_and_written) {
  EXPECT_EQ(topk().to_string(), "topk:density=0.01,values=fp32");
  EXPECT_EQ(Compression::parse("topk:density=0.05,values=int8"), topk({.density = 0.05, .int8_values = true}));
  EXPECT_THROW(topk({.density = 0}), Error);
  EXPECT_THROW(topk({.density = 0.51}), Error);
}

}  // namespace
}  // namespace qccl
