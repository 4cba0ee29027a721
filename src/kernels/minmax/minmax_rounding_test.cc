// Errors of max-min codes of 1 to 8 and 16 bits: the mean square for normally distributed data; for stochastic rounding
// the mean, the variance, values that must not move, and sums over ranks.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/minmax/minmax.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

using FloatVector = std::vector<float>;

FloatVector round_trip(MinmaxFormat format, const FloatVector& x, const RandomStream* random) {
  std::vector<std::byte> bytes(minmax_encoded_bytes(format, x.size()));
  minmax_encode(format, x.data(), x.size(), bytes.data(), random);
  FloatVector y(x.size());
  minmax_decode(format, bytes.data(), y.data(), x.size());
  return y;
}

FloatVector round_trip(MinmaxFormat format, const FloatVector& x, const RandomStream& random) {
  return round_trip(format, x, &random);
}

// Mean square error relative to the mean square of normal values, rounded to nearest, computed independently of the
// library, in double with 2^23 samples.
TEST(MinmaxAccuracy, error_of_normal_values_is_that_of_a_model_in_double) {
  struct Case {
    MinmaxFormat format;
    double error;
  };
  const FloatVector x = finite_families()[0].values(1 << 18, 45);
  for (const Case& c :
       {Case{{2, 64}, 0.2023}, Case{{3, 64}, 3.697e-2}, Case{{4, 64}, 8.025e-3}, Case{{4, 128}, 9.955e-3},
        Case{{4, 1024}, 1.564e-2}, Case{{8, 128}, 3.438e-5}, Case{{8, 1024}, 5.436e-5}}) {
    const FloatVector y = round_trip(c.format, x, nullptr);
    double error = 0, power = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      error += std::pow(static_cast<double>(x[i]) - y[i], 2);
      power += std::pow(static_cast<double>(x[i]), 2);
    }
    EXPECT_NEAR(error / power, c.error, 0.03 * c.error) << c.format.bits << " " << c.format.bucket_size;
  }
}

// A bucket of unit 1 and minimum 0, of values spread evenly over the fractions between whole numbers: the error of
// random rounding has a mean square of f (1 - f), 1/6 on average over those.
FloatVector bucket_of_even_fractions(Random& random, std::size_t size, int bits) {
  const unsigned most = (1u << bits) - 1;
  FloatVector x(size);
  for (std::size_t i = 0; i < size; ++i) {
    x[i] = static_cast<float>(random() % most) + (static_cast<float>(i) + 0.5f) / static_cast<float>(size);
  }
  x.push_back(0);
  x.push_back(static_cast<float>(most));
  return x;
}

// A bucket of unit 1 and minimum 0, with random values.
FloatVector bucket_of_unit_one(Random& random, std::size_t size, int bits) {
  const auto most = static_cast<float>((1 << bits) - 1);
  FloatVector x(size);
  for (float& value : x) value = uniform(random, 0, most);
  x[0] = 0;
  x[1] = most;
  return x;
}

TEST(MinmaxRounding, stochastic_rounding_has_the_right_mean_and_variance) {
  constexpr std::size_t kSize = 512;
  constexpr int kRounds = 2048;
  Random random(41);
  for (const int bits : {1, 2, 4, 8, 16}) {
    const FloatVector x = bucket_of_even_fractions(random, kSize, bits);
    std::vector<double> sum(kSize), squares(kSize);
    for (std::uint64_t key = 0; key < kRounds; ++key) {
      const FloatVector y = round_trip({bits, kSize + 2}, x, {.key = key});
      for (std::size_t i = 0; i < kSize; ++i) {
        const double error = static_cast<double>(y[i]) - x[i];
        ASSERT_LT(std::fabs(error), 1.0);
        sum[i] += error;
        squares[i] += error * error;
      }
    }
    double mean_square = 0;
    for (std::size_t i = 0; i < kSize; ++i) {
      const double mean = sum[i] / kRounds;
      ASSERT_LE(std::fabs(mean), 4 * std::sqrt(0.25 / kRounds) + 1.0 / 512) << bits << " " << x[i];
      ASSERT_LE(squares[i] / kRounds - mean * mean, 0.25 + 1e-9) << "rounds to more than two values";
      mean_square += squares[i] / kRounds / kSize;
    }
    EXPECT_NEAR(mean_square, 1.0 / 6, 0.03 / 6) << bits;
  }
}

TEST(MinmaxRounding, minimum_maximum_and_whole_codes_do_not_move) {
  for (const int bits : {1, 3, 8, 16}) {
    const int most = (1 << bits) - 1;
    FloatVector x;
    for (int code = 0; code <= most; code += 1 + most / 1000) x.push_back(static_cast<float>(code));
    x.push_back(static_cast<float>(most));
    for (std::uint64_t key = 0; key < 50; ++key) ASSERT_EQ(round_trip({bits, 65536}, x, {.key = key}), x) << bits;
  }
}

TEST(MinmaxRounding, every_element_is_within_a_unit) {
  for (const ValueFamily& family : finite_families()) {
    const FloatVector x = family.values(2048, 42);
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    const double most = std::max(std::fabs(static_cast<double>(*low)), std::fabs(static_cast<double>(*high)));
    for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
      const double range = static_cast<double>(*high) - static_cast<double>(*low);
      const double unit = std::max(range / ((1 << bits) - 1), 0x1p-126);
      const double ulp = std::max(std::ldexp(most, -23), 0x1p-149);
      const FloatVector y = round_trip({bits, 2048}, x, {.key = 43});
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_LE(std::fabs(static_cast<double>(y[i]) - x[i]), unit + 6 * ulp) << family.name << " " << bits;
      }
    }
  }
}

// Variance, in steps^2, of the sum over ranks of their errors.
double variance_of_sum(std::uint32_t world, bool same_input, bool stratified) {
  constexpr std::size_t kSize = 1024;
  Random random(44);
  double squares = 0;
  const std::uint64_t rounds = 1200 / world + 40;
  for (std::uint64_t key = 0; key < rounds; ++key) {
    std::vector<double> sum(kSize);
    FloatVector x = bucket_of_unit_one(random, kSize, 4);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      if (rank > 0 && !same_input) x = bucket_of_unit_one(random, kSize, 4);
      const RandomStream together{.key = key, .rank = rank, .world = world}, apart{.key = key * world + rank};
      const FloatVector y = round_trip({4, kSize}, x, stratified ? together : apart);
      for (std::size_t i = 0; i < kSize; ++i) sum[i] += static_cast<double>(y[i]) - x[i];
    }
    for (std::size_t i = 2; i < kSize; ++i) squares += sum[i] * sum[i];
  }
  return squares / static_cast<double>(rounds * (kSize - 2));
}

TEST(MinmaxRounding, errors_stratified_over_ranks_cancel_in_the_sum) {
  for (const std::uint32_t world : {1u, 2u, 4u, 8u, 32u}) {
    const double n = world;
    EXPECT_NEAR(variance_of_sum(world, false, true), (n + 1) / 12, 0.05 * (n + 1) / 12) << world;
    EXPECT_NEAR(variance_of_sum(world, true, true), 1.0 / 6, 0.05 / 6) << world;
    EXPECT_NEAR(variance_of_sum(world, false, false), n / 6, 0.05 * n / 6) << world;
  }
}

}  // namespace
}  // namespace qccl::kernels
