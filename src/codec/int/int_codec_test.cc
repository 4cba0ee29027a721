// The range of the int codec. Sizes, bounds and random numbers: codec/codec_test.cc. Rounding and bytes:
// kernels/block_int. The promises of every codec: tests/property/codec_contract_test.cc.
#include <cmath>
#include <vector>

#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

// DeepSpeed's symmetric quantizer divides by 2^(bits - 1) and clips the positive maximum by a whole step.
TEST(IntCodec, both_ends_of_the_range_are_as_near_as_all_else) {
  for (int bits = 2; bits <= 8; ++bits) {
    const std::vector<float> y = round_trip(*codec_of(block_int({.bits = bits})), std::vector{3.7f, -3.7f, 0.0f});
    EXPECT_NEAR(y[0], 3.7f, 3.7 / 127) << bits;
    EXPECT_EQ(y[1], -y[0]);
    EXPECT_EQ(y[2], 0.0f);
  }
}

// A scale in float16 would be zero here, and the block lost.
TEST(IntCodec, small_gradients_survive) {
  const auto codec = codec_of(block_int());
  std::vector<float> x = kernels::finite_families()[0].values(1280, 13);
  for (float& value : x) value *= 1e-9f;
  EXPECT_LE(worst_error(*codec, x), 1.0);
  const std::vector<float> y = round_trip(*codec, x);
  EXPECT_GT(std::count_if(y.begin(), y.end(), [](float value) { return value != 0; }), 1200);
}

}  // namespace
}  // namespace qccl
