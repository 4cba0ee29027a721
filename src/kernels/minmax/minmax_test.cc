// The kernels' contract, the layout of the bytes, and the errors: bounds; the mean square for normally distributed
// data; for stochastic rounding the mean, the variance, values that must not move, and sums over ranks.
#include "kernels/minmax/minmax.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/codec_kernel_contract.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

struct MinmaxKernel : FixedSizeKernel<minmax_encoded_bytes, minmax_decode> {
  struct Format : MinmaxFormat {
    bool stochastic = false;
  };
  static constexpr std::size_t kMostTail = 130;
  static std::vector<std::size_t> counts() { return {2100}; }

  static std::vector<Format> formats() {
    std::vector<Format> formats;
    for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
      for (const std::uint32_t bucket_size : {1u, 7u, 37u, 64u, 1000u, 1024u, 65536u}) {
        formats.push_back({{bits, bucket_size}, false});
      }
      for (const std::uint32_t bucket_size : {7u, 64u, 1000u}) formats.push_back({{bits, bucket_size}, true});
    }
    for (const int bits : {9, 12, 15, 17, 23, 24, 31}) {
      for (const bool stochastic : {false, true}) formats.push_back({{bits, 100}, stochastic});
    }
    return formats;
  }
  static std::string text(const Format& format) {
    return std::to_string(format.bits) + (format.stochastic ? " bits, stochastic, bucket " : " bits, bucket ") +
           std::to_string(format.bucket_size);
  }
  static void encode(const Format& format, const float* source, std::size_t n, std::byte* target) {
    const RandomStream stream{.key = 11, .first_element = 12345, .rank = 1, .world = 3};
    minmax_encode(format, source, n, target, format.stochastic ? &stream : nullptr);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Minmax, CodecKernelContract, MinmaxKernel);

// Header {unit, minimum}, then the codes; checked by hand.
TEST(Minmax, golden_vectors) {
  const std::vector<Golden> goldens = {
      // unit 1 = 3F800000, minimum 0; codes 0 1 0 1 1 0 0 0 | 1
      {1, {0, 1, 0, 1, 1, 0, 0, 0, 1}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0x1A, 0x01}},
      // unit 1, minimum -1 = BF800000; codes 0 1 2 3 -> 11 10 01 00
      {2, {-1, 0, 1, 2}, {0, 0, 0x80, 0x3F, 0, 0, 0x80, 0xBF, 0xE4}},
      // codes 0..7 of three bits: 000 | 001 | 010 ... = 0xFAC688
      {3, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0x88, 0xC6, 0xFA}},
      // unit 2 = 40000000, minimum 0; 3 is a half step from 2 and rounds up to code 2: codes 0 2 F
      {4, {0, 3, 30}, {0, 0, 0, 0x40, 0, 0, 0, 0, 0x20, 0x0F}},
      // codes 31 and 0: eleven values would be seven bytes
      {5, {31, 0}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0x1F, 0x00}},
      // codes 63, 1, 2
      {6, {63, 1, 2, 0}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0x7F, 0x20, 0x00}},
      // codes 127, 0, 1
      {7, {127, 0, 1}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0x7F, 0x40, 0x00}},
      {8, {255, 0, 128.5f}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0x00, 0x81}},
      {16, {65535, 0, 258}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0xFF, 0x00, 0x00, 0x02, 0x01}},
      // unit 1, minimum 0; codes 511 0 256 -> 1 0000 0000 | 0 0000 0000 | 1 1111 1111
      {9, {511, 0, 255.5f}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0x01, 0x00, 0x04}},
      {12, {4095, 0, 2}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0x0F, 0x00, 0x02, 0x00}},
      {24, {16777215, 0, 258}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0x02, 0x01, 0x00}},
      // equal values: the smallest unit 2^-126 = 00800000, minimum 1
      {31, {1, 1}, {0, 0, 0x80, 0x00, 0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0}},
      {8, {1, 1}, {0, 0, 0x80, 0x00, 0, 0, 0x80, 0x3F, 0, 0}},
      // not finite: both header fields the canonical NaN
      {9, {1, HUGE_VALF}, {0, 0, 0xC0, 0x7F, 0, 0, 0xC0, 0x7F, 0, 0, 0}},
      {8, {1, -std::numeric_limits<float>::infinity()}, {0, 0, 0xC0, 0x7F, 0, 0, 0xC0, 0x7F, 0, 0}},
  };
  for (const Golden& golden : goldens) {
    expect_bytes<MinmaxKernel>({{golden.bits, 1024}}, golden.values, golden.bytes);
  }
}

TEST(Minmax, golden_codes_run_on_across_buckets) {
  // Two buckets of three: unit 1/7 of 7 and of 14; codes 0 7 1 | 7 0 2, then 18 bits in three bytes.
  expect_bytes<MinmaxKernel>({{3, 3}}, {0, 7, 1, 14, 0, 4},
                             {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0x78, 0x0E, 0x01});
}

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
