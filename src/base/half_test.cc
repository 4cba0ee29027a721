// Half-precision conversions against the definition: every 16-bit value, and every boundary between two.
#include "base/half.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace qccl {
namespace {

// A 16-bit float with `mantissa_bits`, from its definition.
double value_of(std::uint16_t bits, int mantissa_bits) {
  const int bias = (1 << (14 - mantissa_bits)) - 1;
  const int exponent = (bits & 0x7FFF) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                         : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class Half>
struct Traits;
template <>
struct Traits<float16> {
  static constexpr int kMantissaBits = 10;
  static constexpr std::uint16_t kInfinity = 0x7C00, kNan = 0x7E00;
  static float16 narrow(float x) { return to_float16(x); }
};
template <>
struct Traits<bfloat16> {
  static constexpr int kMantissaBits = 7;
  static constexpr std::uint16_t kInfinity = 0x7F80, kNan = 0x7FC0;
  static bfloat16 narrow(float x) { return to_bfloat16(x); }
};

template <class Half>
class HalfTest : public ::testing::Test {};
using HalfTypes = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(HalfTest, HalfTypes);

TYPED_TEST(HalfTest, every_finite_value_widens_exactly_and_comes_back) {
  using T = Traits<TypeParam>;
  for (std::uint32_t magnitude = 0; magnitude < T::kInfinity; ++magnitude) {
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const auto bits = static_cast<std::uint16_t>(sign | magnitude);
      const float wide = to_float(TypeParam{bits});
      ASSERT_EQ(wide, value_of(bits, T::kMantissaBits)) << bits;
      ASSERT_EQ(std::signbit(wide), sign != 0) << bits;
      ASSERT_EQ(T::narrow(wide).bits, bits);
    }
  }
}

TYPED_TEST(HalfTest, rounds_to_nearest_and_ties_to_even) {
  using T = Traits<TypeParam>;
  for (std::uint32_t magnitude = 0; magnitude < T::kInfinity; ++magnitude) {
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const auto lower = static_cast<std::uint16_t>(sign | magnitude);
      const auto upper = static_cast<std::uint16_t>(lower + 1);  // infinity after the largest
      // By the definition, infinity's bits have the value that the next exponent would have.
      const double middle = (value_of(lower, T::kMantissaBits) + value_of(upper, T::kMantissaBits)) / 2;
      const auto tie = static_cast<float>(middle);
      ASSERT_EQ(tie, middle);
      const float towards_zero = std::nextafter(tie, 0.0f);
      const float away = std::nextafter(tie, sign != 0 ? -HUGE_VALF : HUGE_VALF);
      ASSERT_EQ(T::narrow(tie).bits, magnitude % 2 == 0 ? lower : upper) << tie;
      ASSERT_EQ(T::narrow(towards_zero).bits, lower) << tie;
      ASSERT_EQ(T::narrow(away).bits, upper) << tie;
    }
  }
}

TYPED_TEST(HalfTest, infinity_stays_and_larger_values_become_it) {
  using T = Traits<TypeParam>;
  for (const float x : {HUGE_VALF, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(T::narrow(x).bits, T::kInfinity);
    EXPECT_EQ(T::narrow(-x).bits, T::kInfinity | 0x8000);
  }
  EXPECT_EQ(to_float(TypeParam{T::kInfinity}), HUGE_VALF);
  EXPECT_EQ(to_float(TypeParam{static_cast<std::uint16_t>(T::kInfinity | 0x8000)}), -HUGE_VALF);
}

TYPED_TEST(HalfTest, nan_becomes_the_canonical_one) {
  using T = Traits<TypeParam>;
  for (const std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFF800001u, 0xFFFFFFFFu}) {
    EXPECT_EQ(T::narrow(std::bit_cast<float>(bits)).bits, T::kNan);
  }
  EXPECT_TRUE(std::isnan(to_float(TypeParam{static_cast<std::uint16_t>(T::kInfinity + 1)})));
}

TYPED_TEST(HalfTest, float_subnormals_round_like_any_other) {
  using T = Traits<TypeParam>;
  EXPECT_EQ(T::narrow(0.0f).bits, 0);
  EXPECT_EQ(T::narrow(-0.0f).bits, 0x8000);
  EXPECT_EQ(T::narrow(0x1p-149f).bits, 0);
  EXPECT_EQ(T::narrow(-0x1p-149f).bits, 0x8000);
}

}  // namespace
}  // namespace qccl
