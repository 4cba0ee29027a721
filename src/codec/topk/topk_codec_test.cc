// The size of top-k, and damage reported as CorruptData. Bounds: codec/codec_test.cc. The selection itself and all
// instruction sets: kernels/topk/topk_test.cc.
#include <cmath>
#include <vector>

#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

constexpr double kDensities[] = {0.0002, 0.001, 0.01, 0.1, 0.5};

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

TEST(TopkCodec, equal_indices_are_corrupt_data) {
  const auto sparse = codec_of(topk());
  std::vector<float> target(5000);
  std::vector<std::byte> bytes = encoded(*sparse, kernels::finite_families()[0].values(target.size(), 3));
  bytes[41 * 4] = bytes[41 * 4 + 1] = bytes[41 * 4 + 2] = std::byte{0xFF};
  EXPECT_EQ(sparse->decode(bytes, target).error().kind, ErrorKind::corrupt_data);
  EXPECT_EQ(sparse->decode_add(bytes, target, target).error().kind, ErrorKind::corrupt_data);
}

}  // namespace
}  // namespace qccl
