// The errors of block integers: the bounds of block_int_reference.h, and the mean and variance of stochastic rounding,
// alone and stratified over ranks.
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_int/block_int.h"
#include "kernels/block_int/block_int_reference.h"
#include "kernels/test_values.h"
#include "kernels/unit_steps.h"

namespace qccl::kernels {
namespace {

using FloatVector = std::vector<float>;

struct RoundTrip {
  std::vector<double> scales;
  FloatVector values;
};

RoundTrip round_trip(BlockIntFormat format, const FloatVector& x, const RandomStream* random = nullptr) {
  std::vector<std::byte> bytes(block_int_encoded_bytes(format, x.size()));
  block_int_encode(format, x.data(), x.size(), bytes.data(), random);
  RoundTrip result;
  for (std::size_t block = 0; block < block_int_block_count(format, x.size()); ++block) {
    std::uint16_t stored;
    std::memcpy(&stored, bytes.data() + block * kBlockScaleBytes, sizeof(stored));
    result.scales.push_back(reference::read_scale(stored, format.bits));
  }
  result.values.resize(x.size());
  block_int_decode(format, bytes.data(), nullptr, result.values.data(), x.size());
  return result;
}

double largest_magnitude(const FloatVector& x, std::size_t begin, std::size_t end) {
  double largest = 0;
  for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
  return largest;
}

TEST(BlockIntAccuracy, nearest_is_within_half_a_step_and_the_step_is_as_small_as_it_can_be) {
  for (const ValueFamily& family : finite_families()) {
    const FloatVector x = family.values(3000, 21);
    for (int bits = 2; bits <= 8; ++bits) {
      for (const std::uint32_t block_size : {1u, 50u, 128u, 4000u}) {
        const double most = reference::largest_integer(bits);
        const RoundTrip y = round_trip({bits, block_size}, x);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double scale = y.scales[i / block_size];
          const double error = std::fabs(static_cast<double>(x[i]) - y.values[i]);
          ASSERT_LE(error, scale * (0.5 + most * 0x1p-23)) << family.name << " " << bits << " " << x[i];
        }
        for (std::size_t block = 0; block < y.scales.size(); ++block) {
          const double largest =
              largest_magnitude(x, block * block_size, std::min<std::size_t>(x.size(), (block + 1) * block_size));
          ASSERT_LE(y.scales[block], std::max(largest / most * (1 + 0x1p-7 + 0x1p-22), 0x1p-118)) << family.name;
        }
      }
    }
  }
}

TEST(BlockIntAccuracy, zeros_and_the_signs_of_small_values_are_exact) {
  const FloatVector zeros(300, -0.0f);
  for (int bits = 2; bits <= 8; ++bits) {
    for (const float y : round_trip({bits, 128}, zeros).values) ASSERT_EQ(y, 0.0f);
    FloatVector x(300, 0.0f);
    x[7] = 5.0f;
    x[8] = -5.0f;
    const FloatVector y = round_trip({bits, 128}, x).values;
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i] == 0, x[i] == 0) << bits << " " << i;
    ASSERT_EQ(y[7], -y[8]);
  }
}

// Mean square error relative to the mean square of Gaussian values, computed independently of the library, in double
// with 2^23 samples. With scales that are not rounded up the first would be 2.86e-5, the last 5.13e-2.
TEST(BlockIntAccuracy, error_of_gaussian_values_is_that_of_a_model_in_double) {
  struct Case {
    int bits;
    std::uint32_t block_size;
    double error;
  };
  const FloatVector x = finite_families()[0].values(1 << 18, 22);
  for (const Case& c : {Case{8, 32, 2.99e-5}, Case{8, 128, 4.24e-5}, Case{8, 256, 4.88e-5}, Case{6, 32, 4.84e-4},
                        Case{5, 64, 2.54e-3}, Case{4, 32, 9.47e-3}, Case{4, 64, 1.166e-2}, Case{3, 32, 5.16e-2}}) {
    const RoundTrip y = round_trip({c.bits, c.block_size}, x);
    double error = 0, power = 0, expected = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double scale = y.scales[i / c.block_size];
      error += std::pow(static_cast<double>(x[i]) - y.values[i], 2);
      power += std::pow(static_cast<double>(x[i]), 2);
      expected += scale * scale / 12;
    }
    EXPECT_NEAR(error / power, c.error, 0.03 * c.error) << c.bits << " " << c.block_size;
    EXPECT_LE(error, expected * 1.02) << c.bits << " " << c.block_size;
  }
}

UnitSteps unit_steps(int bits) {
  const int most = reference::largest_integer(bits);
  return {-most, most, {static_cast<float>(most)}, [=](const FloatVector& x, const RandomStream& random) {
            return round_trip({bits, 65536}, x, &random).values;
          }};
}

TEST(BlockIntAccuracy, stochastic_rounding_has_the_right_mean_and_variance) {
  for (const int bits : {3, 4, 8}) {
    SCOPED_TRACE(bits);
    expect_right_mean_and_variance(unit_steps(bits), 4096);
  }
}

TEST(BlockIntAccuracy, errors_stratified_over_ranks_cancel_in_the_sum) { expect_errors_of_ranks_cancel(unit_steps(8)); }

TEST(BlockIntAccuracy, whole_numbers_do_not_move) {
  FloatVector x(255);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i) - 127);
  for (std::uint64_t key = 0; key < 100; ++key) {
    const RandomStream stream{.key = key};
    ASSERT_EQ(round_trip({8, 255}, x, &stream).values, x);
  }
}

// If the scale is at its upper limit, the largest values are clamped and nothing overflows.
TEST(BlockIntAccuracy, stochastic_rounding_near_the_largest_float_stays_within_a_step) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const FloatVector x = {kMax, -kMax, 0.9f * kMax, -0.99f * kMax, 0.3f * kMax, 0.0f};
  for (int bits = 2; bits <= 8; ++bits) {
    for (std::uint64_t key = 0; key < 300; ++key) {
      const RandomStream stream{.key = key};
      const RoundTrip y = round_trip({bits, 128}, x, &stream);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_LT(std::fabs(static_cast<double>(x[i]) - y.values[i]), y.scales[0]) << bits << " " << x[i];
      }
    }
  }
}

}  // namespace
}  // namespace qccl::kernels
