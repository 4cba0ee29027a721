// For tests: the promises of random rounding, on buckets whose step is 1.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "kernels/lanes/random.h"
#include "kernels/test_values.h"

namespace qccl::kernels {

// A codec's bucket whose step is 1, because it ends with `ends`; its other elements lie between `low` and `high`.
struct UnitSteps {
  int low, high;
  std::vector<float> ends;
  // Encodes and decodes one bucket.
  std::function<std::vector<float>(const std::vector<float>& x, const RandomStream& random)> round_trip;

  // `size` elements, those of make(index), and the ends.
  template <class Make>
  std::vector<float> bucket(std::size_t size, Make make) const {
    std::vector<float> x(size);
    for (std::size_t i = 0; i < size; ++i) x[i] = make(i);
    x.insert(x.end(), ends.begin(), ends.end());
    return x;
  }
};

// Values spread evenly over the fractions between whole numbers: their errors have a mean square of f (1 - f), 1/6 on
// average.
inline void expect_right_mean_and_variance(const UnitSteps& steps, int rounds) {
  constexpr std::size_t kSize = 512;
  Random random(41);
  const auto x = steps.bucket(kSize, [&](std::size_t i) {
    const int whole = steps.low + static_cast<int>(random() % static_cast<unsigned>(steps.high - steps.low));
    return static_cast<float>(whole) + (static_cast<float>(i) + 0.5f) / static_cast<float>(kSize);
  });
  std::vector<double> sum(kSize), squares(kSize);
  for (int key = 0; key < rounds; ++key) {
    const auto y = steps.round_trip(x, {.key = static_cast<std::uint64_t>(key), .first_element = 1000});
    for (std::size_t i = 0; i < kSize; ++i) {
      const double error = static_cast<double>(y[i]) - x[i];
      ASSERT_LT(std::fabs(error), 1.0);
      sum[i] += error;
      squares[i] += error * error;
    }
  }
  double mean_square = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    const double mean = sum[i] / rounds;
    ASSERT_LE(std::fabs(mean), 4 * std::sqrt(0.25 / rounds) + 1.0 / 512) << x[i];
    ASSERT_LE(squares[i] / rounds - mean * mean, 0.25 + 1e-9) << "rounds to more than two values";
    mean_square += squares[i] / rounds / kSize;
  }
  EXPECT_NEAR(mean_square, 1.0 / 6, 0.03 / 6);
}

// Variance, in steps^2, of the sum over ranks of their errors.
inline double variance_of_sum(const UnitSteps& steps, std::uint32_t world, bool same_input, bool stratified) {
  constexpr std::size_t kSize = 1024;
  Random random(44);
  double squares = 0;
  const std::uint64_t rounds = 1200 / world + 40;
  for (std::uint64_t key = 0; key < rounds; ++key) {
    std::vector<double> sum(kSize);
    std::vector<float> x;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      if (rank == 0 || !same_input) {
        x = steps.bucket(kSize, [&](std::size_t) {
          return uniform(random, static_cast<float>(steps.low), static_cast<float>(steps.high));
        });
      }
      const RandomStream together{.key = key, .rank = rank, .world = world}, apart{.key = key * world + rank};
      const auto y = steps.round_trip(x, stratified ? together : apart);
      for (std::size_t i = 0; i < kSize; ++i) sum[i] += static_cast<double>(y[i]) - x[i];
    }
    for (const double error : sum) squares += error * error;
  }
  return squares / static_cast<double>(rounds * kSize);
}

inline void expect_errors_of_ranks_cancel(const UnitSteps& steps) {
  for (const std::uint32_t world : {1u, 2u, 4u, 8u, 32u}) {
    const double n = world;
    EXPECT_NEAR(variance_of_sum(steps, world, false, true), (n + 1) / 12, 0.05 * (n + 1) / 12) << world;
    EXPECT_NEAR(variance_of_sum(steps, world, true, true), 1.0 / 6, 0.05 / 6) << world;
    EXPECT_NEAR(variance_of_sum(steps, world, false, false), n / 6, 0.05 * n / 6) << world;
  }
}

}  // namespace qccl::kernels
