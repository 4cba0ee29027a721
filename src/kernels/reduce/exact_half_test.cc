// widen_exactly() and narrow_exactly(): every 16-bit pattern comes back, on every instruction set, and every float32
// narrows as the reference says.
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/reduce/reduce.h"
#include "kernels/reduce/reduce_reference.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr DataType kTypes[] = {DataType::float16, DataType::bfloat16};

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  return patterns;
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
  for (const DataType type : kTypes) {
    for (const std::uint16_t half : all_patterns()) {
      const float number = type == DataType::float16 ? to_float(float16{half}) : to_float(bfloat16{half});
      const std::uint32_t exact = reference::widen_exactly(type, half);
      ASSERT_EQ(exact >> 31, half >> 15) << half;
      if (std::isnan(number)) {
        ASSERT_GT(exact & 0x7FFFFFFFu, 0x7F800000u) << half;
      } else {
        ASSERT_EQ(exact, std::bit_cast<std::uint32_t>(number)) << half;
      }
    }
  }
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
  EXPECT_EQ(reference::narrow_exactly(DataType::float16, 0xFF800001u), 0xFE00);
  EXPECT_EQ(reference::narrow_exactly(DataType::bfloat16, 0xFF800001u), 0xFFC0);
}

}  // namespace
}  // namespace qccl::kernels
