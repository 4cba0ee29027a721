// Max-min quantization of 9 to 31 bits: layout, bound, and values that are not finite. One code for all instruction
// sets.
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/minmax/minmax.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr std::array kWidths = {9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

using ByteVector = std::vector<std::byte>;
using FloatVector = std::vector<float>;

ByteVector encoded(MinmaxFormat format, const FloatVector& x, const RandomStream* random = nullptr) {
  ByteVector bytes(minmax_encoded_bytes(format, x.size()) + 1, std::byte{0xA5});
  minmax_encode(format, x.data(), x.size(), bytes.data(), random);
  EXPECT_EQ(bytes.back(), std::byte{0xA5});
  bytes.pop_back();
  return bytes;
}

FloatVector decoded(MinmaxFormat format, const ByteVector& bytes, std::size_t n) {
  FloatVector y(n + 1, -7.0f);
  minmax_decode(format, bytes.data(), y.data(), n);
  EXPECT_EQ(y.back(), -7.0f);
  y.pop_back();
  return y;
}

double ulp(double x) { return std::max(std::ldexp(1.0, std::ilogb(std::max(x, 0x1p-149)) - 23), 0x1p-149); }

// Checks that |y - x| is at most `units` steps and 3 ulp.
void expect_within(MinmaxFormat format, const FloatVector& x, const FloatVector& y, double units) {
  for (std::size_t begin = 0; begin < x.size(); begin += format.bucket_size) {
    const std::size_t end = std::min<std::size_t>(x.size(), begin + format.bucket_size);
    const auto [low, high] = std::minmax_element(&x[begin], &x[begin] + (end - begin));
    const double range = static_cast<double>(*high) - static_cast<double>(*low);
    const double unit = std::max(range / (std::ldexp(1.0, format.bits) - 1) * (1 + 0x1p-24), 0x1p-126);
    const double most = std::max(std::fabs(static_cast<double>(*low)), std::fabs(static_cast<double>(*high)));
    for (std::size_t i = begin; i < end; ++i) {
      ASSERT_TRUE(std::isfinite(y[i]));
      ASSERT_LE(std::fabs(static_cast<double>(x[i]) - y[i]), units * unit + 3 * ulp(most)) << x[i];
    }
  }
}

TEST(MinmaxDouble, every_element_is_within_the_bound) {
  const RandomStream stream{.key = 31, .first_element = 3};
  for (const ValueFamily& family : finite_families()) {
    const FloatVector x = family.values(1500, 32);
    for (const int bits : kWidths) {
      for (const std::uint32_t bucket_size : {1u, 7u, 1000u}) {
        SCOPED_TRACE(family.name + ", bits " + std::to_string(bits) + ", bucket " + std::to_string(bucket_size));
        const MinmaxFormat format{bits, bucket_size};
        expect_within(format, x, decoded(format, encoded(format, x), x.size()), 0.5);
        expect_within(format, x, decoded(format, encoded(format, x, &stream), x.size()), 1.0);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(MinmaxDouble, more_bits_are_less_error_until_the_floats_end) {
  const FloatVector x = finite_families()[0].values(4096, 33);
  double before = 1;
  for (const int bits : kWidths) {
    const FloatVector y = decoded({bits, 1024}, encoded({bits, 1024}, x), x.size());
    double error = 0;
    for (std::size_t i = 0; i < x.size(); ++i) error += std::pow(static_cast<double>(x[i]) - y[i], 2);
    EXPECT_LT(error, bits <= 22 ? before / 3 : 1e-9) << bits;
    before = error;
  }
}

// Header {unit, minimum}, then the codes; checked by hand.
TEST(MinmaxDouble, golden_vectors) {
  struct Golden {
    int bits;
    FloatVector values;
    std::vector<int> bytes;
  };
  const std::vector<Golden> goldens = {
      // unit 1, minimum 0; codes 511 0 256 -> 1 0000 0000 | 0 0000 0000 | 1 1111 1111
      {9, {511, 0, 255.5f}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0x01, 0x00, 0x04}},
      {12, {4095, 0, 2}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0x0F, 0x00, 0x02, 0x00}},
      {24, {16777215, 0, 258}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0x02, 0x01, 0x00}},
      // equal values: the smallest unit 2^-126 = 00800000, minimum 1
      {31, {1, 1}, {0, 0, 0x80, 0x00, 0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0}},
      // not finite: both header fields the canonical NaN
      {9, {1, HUGE_VALF}, {0, 0, 0xC0, 0x7F, 0, 0, 0xC0, 0x7F, 0, 0, 0}},
  };
  for (const Golden& golden : goldens) {
    ByteVector expected;
    for (const int byte : golden.bytes) expected.push_back(static_cast<std::byte>(byte));
    EXPECT_EQ(encoded({golden.bits, 1024}, golden.values), expected) << golden.bits;
  }
}

TEST(MinmaxDouble, a_bucket_that_is_not_finite_decodes_to_nan_alone) {
  for (const int bits : kWidths) {
    FloatVector x(30, 2.0f);
    x[12] = std::nanf("7");
    const FloatVector y = decoded({bits, 10}, encoded({bits, 10}, x), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]), i / 10 == 1 ? 0x7FC00000u : 0x40000000u) << bits << " " << i;
    }
  }
}

TEST(MinmaxDouble, stochastic_rounding_is_right_on_average) {
  constexpr int kRounds = 2000;
  const MinmaxFormat format{9, 64};
  FloatVector x = finite_families()[0].values(64, 34);
  x[0] = 0;
  x[1] = 511;  // unit 1 from the minimum on, about -2
  FloatVector mean(x.size());
  for (std::uint64_t key = 0; key < kRounds; ++key) {
    const RandomStream stream{.key = key};
    const FloatVector y = decoded(format, encoded(format, x, &stream), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) mean[i] += y[i] / kRounds;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(mean[i], x[i], 1.01 * (4 * std::sqrt(0.25 / kRounds) + 1.0 / 512)) << i;
  }
}

// Buffers have exactly their size, so the address sanitizer sees every byte read out of bounds.
TEST(MinmaxDouble, any_bytes_decode_within_bounds_and_sums_are_canonical) {
  Random random(35);
  for (int round = 0; round < 500; ++round) {
    const MinmaxFormat format{kWidths[random() % kWidths.size()], 1 + static_cast<std::uint32_t>(random() % 70)};
    const std::size_t n = random() % 100;
    const std::size_t size = minmax_encoded_bytes(format, n);
    const auto bytes = std::make_unique<std::byte[]>(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(random());
    const FloatVector addend = families_with_nonfinite().back().values(n, 7);
    FloatVector values(n), sums(n);
    minmax_decode(format, bytes.get(), values.data(), n);
    minmax_decode_add(format, bytes.get(), addend.data(), sums.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      const float sum = addend[i] + values[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(sums[i]),
                std::isnan(sum) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(sum));
    }
  }
}

}  // namespace
}  // namespace qccl::kernels
