// The scales, and the error of a bucket. Sizes: codec/codec_test.cc. The promises of every codec:
// tests/property/codec_contract_test.cc.
#include <bit>
#include <cmath>
#include <vector>

#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

using kernels::finite_families;
using kernels::on_every_simd;
using kernels::ValueFamily;

struct Norms {
  long double one = 0;    // sum of |x|
  long double two = 0;    // sum of x^2
  long double error = 0;  // sum of (x - y)^2
};
Norms norms_of(std::span<const float> x, std::span<const float> y) {
  Norms norms;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<long double>(x[i]);
    norms.one += std::fabs(value);
    norms.two += value * value;
    norms.error += (value - y[i]) * (value - y[i]);
  }
  return norms;
}

// Calls check(family, x, norms) for buckets of `size` values of each family.
template <class Check>
void each_bucket(const Codec& codec, std::size_t size, Check check) {
  for (const ValueFamily& family : finite_families()) {
    const std::vector<float> x = family.values(size, 31);
    check(family.name, x, norms_of(x, round_trip(codec, x)));
  }
}

// The scale is the best one: the error is what remains of x without its part along the signs.
TEST(SignCodec, error_of_a_bucket_is_the_norm_less_the_mean_magnitude) {
  on_every_simd([&] {
    for (const std::uint32_t size : {1u, 100u, 1024u, 65536u}) {
      const auto codec = codec_of(sign({.bucket_size = size}));
      each_bucket(*codec, size, [&](const std::string& name, std::span<const float>, const Norms& n) {
        if (n.two == 0) return;
        const long double expected = n.two - n.one * n.one / size;
        EXPECT_NEAR(static_cast<double>(n.error / n.two), static_cast<double>(expected / n.two), 1e-6)
            << name << ", " << size;
      });
    }
  });
}

// Except for squares too small for the scale, a float32, to have all its bits.
TEST(SignCodec, the_norm_scale_keeps_the_norm) {
  on_every_simd([&] {
    for (const std::uint32_t size : {1u, 100u, 1024u, 65536u}) {
      const auto codec = codec_of(sign({.bucket_size = size, .norm_scale = true}));
      each_bucket(*codec, size, [&](const std::string& name, std::span<const float> x, const Norms& n) {
        if (n.two < 1e-70L) return;
        const std::vector<float> y = round_trip(*codec, x);
        EXPECT_NEAR(static_cast<double>(std::sqrt(norms_of(y, y).two / n.two)), 1, 1e-6) << name << ", " << size;
        const long double cosine = n.one / std::sqrt(n.two * size);
        EXPECT_NEAR(static_cast<double>(n.error / n.two), static_cast<double>(2 - 2 * cosine), 1e-6) << name;
      });
    }
  });
}

// 1 - 2/pi of the energy of normally distributed values; twice 1 - sqrt(2/pi) with the norm's scale.
TEST(SignCodec, error_of_normal_values_is_that_of_the_theory) {
  const std::vector<float> x = finite_families()[0].values(1 << 18, 32);
  const Norms mean = norms_of(x, round_trip(*codec_of(sign({.bucket_size = 1024})), x));
  EXPECT_NEAR(static_cast<double>(mean.error / mean.two), 1 - 2 / M_PI, 0.004);
  const Norms norm = norms_of(x, round_trip(*codec_of(sign({.bucket_size = 1024, .norm_scale = true})), x));
  EXPECT_NEAR(static_cast<double>(norm.error / norm.two), 2 * (1 - std::sqrt(2 / M_PI)), 0.004);
}

TEST(SignCodec, zeros_come_back_and_are_positive_among_others) {
  const auto codec = codec_of(sign({.bucket_size = 8}));
  const std::vector<float> zeros = {0.0f, -0.0f, 0.0f};
  for (const float y : round_trip(*codec, zeros)) EXPECT_EQ(std::bit_cast<std::uint32_t>(y), 0u);
  const std::vector<float> y = round_trip(*codec, std::vector<float>{-0.0f, 0.0f, -4.0f, 4.0f});
  EXPECT_EQ(y, (std::vector<float>{2.0f, 2.0f, -2.0f, 2.0f}));
}

}  // namespace
}  // namespace qccl
