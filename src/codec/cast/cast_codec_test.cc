#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

using kernels::families_with_nonfinite;
using kernels::finite_families;
using kernels::on_every_simd;

constexpr std::array kWireTypes = {DataType::bfloat16, DataType::float16};

TEST(CastCodec, wire_holds_each_element_rounded_to_nearest_even_little_endian) {
  on_every_simd([] {
    for (const auto& family : families_with_nonfinite()) {
      const std::vector<float> x = family.values(131, 1);
      for (const DataType wire : kWireTypes) {
        const auto bytes = encoded(*codec_of(cast(wire)), x);
        ASSERT_EQ(bytes.size(), 2 * x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
          const auto bits = wire == DataType::float16 ? to_float16(x[i]).bits : to_bfloat16(x[i]).bits;
          ASSERT_EQ(load<std::uint16_t>(&bytes[2 * i]), bits) << family.name << " " << x[i];
        }
      }
    }
  });
}

TEST(CastCodec, every_element_is_within_the_bound) {
  for (const auto& family : finite_families()) {
    const std::vector<float> x = family.values(5000, 2);
    for (const DataType wire : kWireTypes) {
      const auto codec = codec_of(cast(wire));
      const std::vector<float> y = round_trip(*codec, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double bound = codec->error_bound({x[i], x[i]});
        ASSERT_LE(std::isinf(bound) ? 0 : std::fabs(static_cast<double>(y[i]) - static_cast<double>(x[i])), bound)
            << family.name << " " << x[i];
        ASSERT_EQ(std::isinf(y[i]), std::isinf(bound)) << family.name << " " << x[i];
      }
    }
  }
}

TEST(CastCodec, values_that_are_not_finite_stay_so) {
  for (const DataType wire : kWireTypes) {
    const auto codec = codec_of(cast(wire));
    const std::vector<float> x = {std::nanf("3"), HUGE_VALF, -HUGE_VALF};
    const std::vector<float> y = round_trip(*codec, x);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y[0]), kCanonicalNanBits);
    EXPECT_EQ(y[1], HUGE_VALF);
    EXPECT_EQ(y[2], -HUGE_VALF);
  }
}

TEST(RawCodec, thirty_two_bits_are_the_unchanged_floats) {
  const auto codec = codec_of(minmax({.bits = 32}));
  for (const auto& family : families_with_nonfinite()) {
    const std::vector<float> x = family.values(100, 5);
    const std::vector<float> y = round_trip(*codec, x);
    EXPECT_EQ(std::memcmp(x.data(), y.data(), 400), 0) << family.name;
  }
  EXPECT_EQ(codec->error_bound({-1, 1}), 0);
}

}  // namespace
}  // namespace qccl
