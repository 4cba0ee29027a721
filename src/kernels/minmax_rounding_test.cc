// Stochastic rounding of max-min codes of 1 to 8 and 16 bits: mean, variance, what must not move.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/minmax.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

using FloatVector = std::vector<float>;

FloatVector round_trip(MinmaxFormat format, const FloatVector& x, const RandomStream& random) {
  std::vector<std::byte> bytes(minmax_encoded_bytes(format, x.size()));
  minmax_encode(format, x.data(), x.size(), bytes.data(), &random);
  FloatVector y(x.size());
  minmax_decode(format, bytes.data(), y.data(), x.size());
  return y;
}

// A bucket of unit 1 and minimum 0, with fractions spread evenly.
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
    const FloatVector x = bucket_of_unit_one(random, kSize, bits);
    std::vector<double> sum(kSize), squares(kSize);
    for (std::uint64_t key = 0; key < kRounds; ++key) {
      const FloatVector y = round_trip({bits, kSize}, x, {.key = key});
      for (std::size_t i = 0; i < kSize; ++i) {
        const double error = static_cast<double>(y[i]) - x[i];
        ASSERT_LT(std::fabs(error), 1.0);
        sum[i] += error;
        squares[i] += error * error;
      }
    }
    double mean_square = 0;
    for (std::size_t i = 0; i < kSize; ++i) {
      ASSERT_LE(std::fabs(sum[i] / kRounds), 4 * std::sqrt(0.25 / kRounds) + 1.0 / 512) << bits << " " << x[i];
      mean_square += squares[i] / kRounds / kSize;
    }
    EXPECT_NEAR(mean_square, 1.0 / 6, 0.06 / 6) << bits;
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

TEST(MinmaxRounding, errors_stratified_over_ranks_cancel_in_the_sum) {
  constexpr std::size_t kSize = 1024;
  constexpr std::uint32_t kWorld = 8;
  Random random(44);
  double squares = 0;
  for (std::uint64_t key = 0; key < 100; ++key) {
    std::vector<double> sum(kSize);
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
      const FloatVector x = bucket_of_unit_one(random, kSize, 4);
      const FloatVector y = round_trip({4, kSize}, x, {.key = key, .rank = rank, .world = kWorld});
      for (std::size_t i = 0; i < kSize; ++i) sum[i] += static_cast<double>(y[i]) - x[i];
    }
    for (const double error : sum) squares += error * error / (100 * kSize);
  }
  EXPECT_NEAR(squares, (kWorld + 1) / 12.0, 0.05 * (kWorld + 1) / 12.0);
}

}  // namespace
}  // namespace qccl::kernels
