// Every 16-bit pattern comes back, on every instruction set, and every float32 narrows as the reference says.
#include "kernels/reduce/exact_half.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/reduce/reduce.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr DataType kTypes[] = {DataType::float16, DataType::bfloat16};

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  return patterns;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

TEST(ExactHalf, all_patterns_come_back) {
  const auto patterns = all_patterns();
  on_every_simd([&] {
    for (const DataType type : kTypes) {
      std::vector<float> wide(patterns.size());
      widen_exactly(type, wide.data(), patterns.data(), patterns.size());
      std::vector<std::uint16_t> back(patterns.size());
      narrow_exactly(type, back.data(), wide.data(), wide.size());
      ASSERT_EQ(back, patterns) << to_string(type);
    }
  });
}

TEST(ExactHalf, numbers_widen_to_the_same_numbers_and_nan_to_nan) {
  const auto patterns = all_patterns();
  on_every_simd([&] {
    for (const DataType type : kTypes) {
      std::vector<float> exact(patterns.size()), rounded(patterns.size());
      widen_exactly(type, exact.data(), patterns.data(), patterns.size());
      widen(type, rounded.data(), patterns.data(), patterns.size());
      const auto exact_bits = bits_of(exact), rounded_bits = bits_of(rounded);
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        const bool is_nan = (rounded_bits[i] & 0x7FFFFFFFu) > 0x7F800000u;
        ASSERT_EQ((exact_bits[i] & 0x7FFFFFFFu) > 0x7F800000u, is_nan) << i;
        ASSERT_EQ(exact_bits[i] >> 31, patterns[i] >> 15) << i;
        if (is_nan) continue;
        ASSERT_EQ(exact_bits[i], rounded_bits[i]) << i;
      }
    }
  });
}

TEST(ExactHalf, every_target_equals_the_reference_at_every_tail) {
  auto families = families_with_nonfinite();
  families.push_back(
      {"any bits", [](Random& r, std::size_t) { return std::bit_cast<float>(static_cast<std::uint32_t>(r())); }});
  families.push_back({"NaN with little payload", [](Random& r, std::size_t) {
                        const std::uint32_t payload = 1u << r() % 23;
                        return std::bit_cast<float>(0x7F800000u | payload | (r() % 2 == 0 ? 0x80000000u : 0u));
                      }});
  on_every_simd([&] {
    for (const ValueFamily& family : families) {
      for (std::size_t n = 0; n < 70; ++n) {
        const auto values = family.values(n, static_cast<std::uint32_t>(n));
        const auto bits = bits_of(values);
        for (const DataType type : kTypes) {
          std::vector<std::uint16_t> halves(n + 1, 0xA5A5);
          narrow_exactly(type, halves.data(), values.data(), n);
          ASSERT_EQ(halves[n], 0xA5A5);
          for (std::size_t i = 0; i < n; ++i) {
            ASSERT_EQ(halves[i], reference::narrow_exactly(type, bits[i])) << family.name << " " << i;
          }
          std::vector<float> wide(n + 1, -7.0f);
          widen_exactly(type, wide.data(), halves.data(), n);
          ASSERT_EQ(wide[n], -7.0f);
          for (std::size_t i = 0; i < n; ++i) {
            ASSERT_EQ(bits_of(wide)[i], reference::widen_exactly(type, halves[i])) << family.name << " " << i;
          }
        }
      }
    }
  });
}

TEST(ExactHalf, nan_stays_nan_however_little_payload_it_has) {
  const std::vector<float> values(33, std::bit_cast<float>(0xFF800001u));
  on_every_simd([&] {
    std::vector<std::uint16_t> halves(values.size());
    narrow_exactly(DataType::float16, halves.data(), values.data(), values.size());
    for (const std::uint16_t half : halves) EXPECT_EQ(half, 0xFE00);
    narrow_exactly(DataType::bfloat16, halves.data(), values.data(), values.size());
    for (const std::uint16_t half : halves) EXPECT_EQ(half, 0xFFC0);
  });
}

}  // namespace
}  // namespace qccl::kernels
