// Errors of max-min codes: bounds; the mean square for normally distributed data; for stochastic rounding
// the mean, the variance, values that must not move, and sums over ranks.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/minmax/minmax.h"
#include "kernels/test_values.h"
#include "kernels/unit_steps.h"

namespace qccl::kernels {
namespace {

using FloatVector = std::vector<float>;

FloatVector round_trip(MinmaxFormat format, const FloatVector& x, const RandomStream* random) {
  std::vector<std::byte> bytes(minmax_encoded_bytes(format, x.size()));
  minmax_encode(format, x.data(), x.size(), bytes.data(), random);
  FloatVector y(x.size());
  minmax_decode(format, bytes.data(), nullptr, y.data(), x.size());
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

UnitSteps unit_steps(int bits) {
  const int most = (1 << bits) - 1;
  return {0, most, {0.0f, static_cast<float>(most)}, [=](const FloatVector& x, const RandomStream& random) {
            return round_trip({bits, 65536}, x, random);
          }};
}

TEST(MinmaxAccuracy, stochastic_rounding_has_the_right_mean_and_variance) {
  for (const int bits : {1, 2, 4, 8, 9, 16}) {
    SCOPED_TRACE(bits);
    expect_right_mean_and_variance(unit_steps(bits), 2048);
  }
}

TEST(MinmaxAccuracy, errors_stratified_over_ranks_cancel_in_the_sum) { expect_errors_of_ranks_cancel(unit_steps(4)); }

TEST(MinmaxAccuracy, minimum_maximum_and_whole_codes_do_not_move) {
  for (const int bits : {1, 3, 8, 16}) {
    const int most = (1 << bits) - 1;
    FloatVector x;
    for (int code = 0; code <= most; code += 1 + most / 1000) x.push_back(static_cast<float>(code));
    x.push_back(static_cast<float>(most));
    for (std::uint64_t key = 0; key < 50; ++key) ASSERT_EQ(round_trip({bits, 65536}, x, {.key = key}), x) << bits;
  }
}

double ulp(double x) { return std::max(std::ldexp(1.0, std::ilogb(std::max(x, 0x1p-149)) - 23), 0x1p-149); }

// Checks that |y - x| is at most `units` steps and 6 ulp; 3 ulp where codes are computed in double.
void expect_within(MinmaxFormat format, const FloatVector& x, const FloatVector& y, double units) {
  const double ulps = format.bits <= 8 || format.bits == 16 ? 6 : 3;
  for (std::size_t begin = 0; begin < x.size(); begin += format.bucket_size) {
    const std::size_t end = std::min<std::size_t>(x.size(), begin + format.bucket_size);
    const auto [low, high] = std::minmax_element(&x[begin], &x[begin] + (end - begin));
    const double range = static_cast<double>(*high) - static_cast<double>(*low);
    const double unit = std::max(range / (std::ldexp(1.0, format.bits) - 1) * (1 + 0x1p-24), 0x1p-126);
    const double most = std::max(std::fabs(static_cast<double>(*low)), std::fabs(static_cast<double>(*high)));
    for (std::size_t i = begin; i < end; ++i) {
      ASSERT_TRUE(std::isfinite(y[i]));
      ASSERT_LE(std::fabs(static_cast<double>(x[i]) - y[i]), units * unit + ulps * ulp(most)) << x[i];
    }
  }
}

TEST(MinmaxAccuracy, every_element_is_within_the_bound) {
  const RandomStream stream{.key = 31, .first_element = 3};
  for (const ValueFamily& family : finite_families()) {
    const FloatVector x = family.values(1500, 32);
    for (int bits = 1; bits < 32; ++bits) {
      for (const std::uint32_t bucket_size : {1u, 7u, 1000u}) {
        SCOPED_TRACE(family.name + ", bits " + std::to_string(bits) + ", bucket " + std::to_string(bucket_size));
        const MinmaxFormat format{bits, bucket_size};
        expect_within(format, x, round_trip(format, x, nullptr), 0.5);
        expect_within(format, x, round_trip(format, x, stream), 1.0);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(MinmaxAccuracy, more_bits_are_less_error_until_the_floats_end) {
  const FloatVector x = finite_families()[0].values(4096, 33);
  double before = 1;
  for (int bits = 9; bits < 32; ++bits) {
    if (bits == 16) continue;  // computed in float
    const FloatVector y = round_trip({bits, 1024}, x, nullptr);
    double error = 0;
    for (std::size_t i = 0; i < x.size(); ++i) error += std::pow(static_cast<double>(x[i]) - y[i], 2);
    EXPECT_LT(error, bits <= 22 ? before / 3 : 1e-9) << bits;
    before = error;
  }
}

}  // namespace
}  // namespace qccl::kernels
