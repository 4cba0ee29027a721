// The values of the max-min codec against a naive model in double. Sizes, bounds and random numbers:
// codec/codec_test.cc. The promises of every codec: tests/property/codec_contract_test.cc.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

using kernels::finite_families;
using kernels::Random;

constexpr std::array kWidths = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 23, 31};

// The rounding errors of the difference, the reciprocal and the products add up here; 4 ulp would be too few.
TEST(MinmaxCodec, rounding_errors_that_add_up_are_within_six_ulp) {
  struct Case {
    int bits;
    float maximum, minimum, x;
  };
  for (const Case& c : {Case{3, 0x1.ffdbe6p+0f, -0x1.730ab6p+0f, 0x1.c0cb68p+0f},
                        Case{4, 0x1.cf8edp+0f, -0x1.f062c2p+0f, 0x1.af8f44p+0f},
                        Case{5, 0x1.e0d8ccp+0f, -0x1.fa897p+0f, 0x1.b111f6p+0f},
                        Case{7, 0x1.fe652cp+0f, -0x1.f89526p+0f, 0x1.e26c58p+0f},
                        Case{8, 0x1.fc4e7cp+0f, -0x1.ffa9f2p+0f, 0x1.ea4e94p+0f}}) {
    const float y = round_trip(*codec_of(minmax({.bits = c.bits})), std::vector{c.maximum, c.minimum, c.x})[2];
    const double half_unit = (static_cast<double>(c.maximum) - c.minimum) / ((1 << c.bits) - 1) / 2;
    const double ulps = (std::fabs(static_cast<double>(y) - c.x) - half_unit) / 0x1p-23;
    EXPECT_GT(ulps, 4.0) << c.bits;
    EXPECT_LE(ulps, 6.0) << c.bits;
  }
}

// The rule in its plainest form, in double: every code is the nearest one, or next to it at a tie.
TEST(MinmaxCodec, agrees_with_a_naive_model_in_double) {
  const std::vector<float> x = finite_families()[0].values(10000, 13);
  for (const int bits : kWidths) {
    const std::vector<float> y = round_trip(*codec_of(minmax({.bits = bits, .bucket_size = 500})), x);
    for (std::size_t begin = 0; begin < x.size(); begin += 500) {
      const std::size_t end = begin + 500;
      const double low = *std::min_element(&x[begin], &x[begin] + (end - begin));
      const double high = *std::max_element(&x[begin], &x[begin] + (end - begin));
      const double unit = (high - low) / (std::ldexp(1.0, bits) - 1);
      for (std::size_t i = begin; i < end; ++i) {
        const double exact = (x[i] - low) / unit;
        const double code = std::floor(exact + 0.5);
        const double distance_to_tie = std::fabs(exact + 0.5 - std::round(exact + 0.5));
        if (distance_to_tie > 0.02) {
          ASSERT_NEAR(y[i], low + code * unit, 1e-5 * std::max(unit, 0.1)) << bits;
        }
      }
    }
  }
}

// QNCCL's largest code could become 2^bits: at 8 bits the maximum became the minimum, below that the
// carry changed its neighbour.
TEST(MinmaxCodec, the_maximum_neither_wraps_nor_carries_into_its_neighbour) {
  Random random(14);
  std::vector<float> x(1 << 18);
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    for (int round = 0; round < 8; ++round) {
      for (float& value : x) {
        const bool at_end = random() % 4 == 0;
        value = at_end ? 1.0f : static_cast<float>(random() >> 8) * 0x1p-24f;
      }
      const float offset = std::ldexp(kernels::uniform(random, -1.0f, 1.0f), static_cast<int>(random() % 24));
      const float scale = std::ldexp(kernels::uniform(random, 0.5f, 1.0f), static_cast<int>(random() % 60) - 30);
      for (float& value : x) value = (value + offset) * scale;
      const auto bucket_size = 16 + static_cast<std::uint32_t>(random() % 64);
      ASSERT_LE(worst_error(*codec_of(minmax({.bits = bits, .bucket_size = bucket_size})), x), 1.0) << "bits " << bits;
    }
  }
}

TEST(MinmaxCodec, equal_values_come_back_exactly) {
  for (const float value : {0.0f, 1.0f, -0.1f, 1e-9f, 1e-40f, -3e38f, 0x1p-149f}) {
    const std::vector<float> x(50, value);
    for (const int bits : kWidths) {
      EXPECT_EQ(round_trip(*codec_of(minmax({.bits = bits, .bucket_size = 20})), x), x) << value << " " << bits;
    }
  }
}

}  // namespace
}  // namespace qccl
