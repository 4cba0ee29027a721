#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "codec/codec.h"
#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

using kernels::families_with_nonfinite;
using kernels::finite_families;
using kernels::on_every_simd;

constexpr std::array kWireTypes = {DataType::bfloat16, DataType::float16};

std::shared_ptr<const Codec> cast_codec(DataType wire) { return make_codec(cast(wire)).take_or_throw(); }

std::vector<std::byte> encode(const Codec& codec, const std::vector<float>& values) {
  std::vector<std::byte> bytes(codec.max_encoded_bytes(values.size()));
  EXPECT_EQ(codec.encode(values, bytes, {}), bytes.size());
  return bytes;
}

TEST(CastCodec, wire_holds_each_element_rounded_to_nearest_even_little_endian) {
  on_every_simd([] {
    for (const auto& family : families_with_nonfinite()) {
      const std::vector<float> x = family.values(131, 1);
      for (const DataType wire : kWireTypes) {
        const auto bytes = encode(*cast_codec(wire), x);
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
      const auto codec = cast_codec(wire);
      std::vector<float> y(x.size());
      ASSERT_TRUE(codec->decode(encode(*codec, x), y).ok());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double bound = codec->error_bound({x[i], x[i]});
        ASSERT_LE(std::isinf(bound) ? 0 : std::fabs(static_cast<double>(y[i]) - static_cast<double>(x[i])), bound)
            << family.name << " " << x[i];
        ASSERT_EQ(std::isinf(y[i]), std::isinf(bound)) << family.name << " " << x[i];
      }
    }
  }
}

TEST(CastCodec, what_is_not_finite_stays_so) {
  for (const DataType wire : kWireTypes) {
    const auto codec = cast_codec(wire);
    const std::vector<float> x = {std::nanf("3"), HUGE_VALF, -HUGE_VALF};
    std::vector<float> y(3);
    ASSERT_TRUE(codec->decode(encode(*codec, x), y).ok());
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y[0]), kCanonicalNanBits);
    EXPECT_EQ(y[1], HUGE_VALF);
    EXPECT_EQ(y[2], -HUGE_VALF);
  }
}

TEST(CastCodec, decode_add_is_decode_and_one_rounded_sum) {
  on_every_simd([] {
    const std::vector<float> x = finite_families()[0].values(333, 3);
    const std::vector<float> addend = finite_families()[0].values(333, 4);
    for (const DataType wire : kWireTypes) {
      const auto codec = cast_codec(wire);
      const auto bytes = encode(*codec, x);
      std::vector<float> y(x.size()), sum(x.size()), in_place(addend);
      ASSERT_TRUE(codec->decode(bytes, y).ok());
      ASSERT_TRUE(codec->decode_add(bytes, addend, sum).ok());
      ASSERT_TRUE(codec->decode_add(bytes, in_place, in_place).ok());
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sum[i], addend[i] + y[i]);
      EXPECT_EQ(sum, in_place);
    }
  });
}

TEST(CastCodec, any_other_size_is_corrupt_data) {
  const auto codec = cast_codec(DataType::bfloat16);
  std::vector<float> target(5);
  const std::vector<std::byte> bytes(20);
  for (const std::size_t size : {0u, 9u, 11u, 20u}) {
    const Status status = codec->decode({bytes.data(), size}, target);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::corrupt_data);
    EXPECT_FALSE(codec->decode_add({bytes.data(), size}, target, target).ok());
  }
}

TEST(RawCodec, thirty_two_bits_are_the_floats_as_they_are) {
  const auto codec = make_codec(minmax({.bits = 32})).take_or_throw();
  for (const auto& family : families_with_nonfinite()) {
    const std::vector<float> x = family.values(100, 5);
    const auto bytes = encode(*codec, x);
    ASSERT_EQ(bytes.size(), 400u);
    std::vector<float> y(x.size());
    ASSERT_TRUE(codec->decode(bytes, y).ok());
    EXPECT_EQ(std::memcmp(x.data(), y.data(), 400), 0) << family.name;
  }
  std::vector<float> target(100);
  EXPECT_EQ(codec->decode({}, target).error().kind, ErrorKind::corrupt_data);
  EXPECT_EQ(codec->error_bound({-1, 1}), 0);
}

}  // namespace
}  // namespace qccl
