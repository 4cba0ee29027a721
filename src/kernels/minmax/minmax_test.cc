// Every instruction set against the scalar reference, byte for byte, and the layout of the bytes.
#include "kernels/minmax/minmax.h"

#include <array>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr std::array kWidths = {1, 2, 3, 4, 5, 6, 7, 8, 16};
constexpr std::byte kCanary{0xA5};
constexpr RandomStream kStream{.key = 11, .first_element = 12345, .rank = 1, .world = 3};

using ByteVector = std::vector<std::byte>;

// Encodes into memory of exactly the right size, `shift` bytes off alignment.
ByteVector encoded(MinmaxFormat format, const float* source, std::size_t n, const RandomStream* random = nullptr,
                   std::size_t shift = 0) {
  ByteVector memory(shift + minmax_encoded_bytes(format, n) + 1, kCanary);
  minmax_encode(format, source, n, memory.data() + shift, random);
  EXPECT_EQ(memory.back(), kCanary);
  for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(memory[i], kCanary);
  return {memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end() - 1};
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

std::vector<std::uint32_t> decoded(MinmaxFormat format, const std::byte* source, std::size_t n, std::size_t shift = 0) {
  std::vector<float> memory(shift + n + 1, -7.0f);
  minmax_decode(format, source, memory.data() + shift, n);
  EXPECT_EQ(memory.back(), -7.0f);
  return bits_of({memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end() - 1});
}

std::vector<std::uint32_t> decoded_add(MinmaxFormat format, const std::byte* source, const float* addend,
                                       std::size_t n) {
  std::vector<float> memory(n + 1, -7.0f);
  minmax_decode_add(format, source, addend, memory.data(), n);
  EXPECT_EQ(memory.back(), -7.0f);
  return bits_of({memory.begin(), memory.end() - 1});
}

std::vector<std::uint32_t> decoded_add_in_place(MinmaxFormat format, const std::byte* source, std::vector<float> sum) {
  minmax_decode_add(format, source, sum.data(), sum.data(), sum.size());
  return bits_of(sum);
}

// On every target; the reference is computed once.
void expect_same_as_reference(MinmaxFormat format, const std::vector<float>& values, const std::vector<float>& addend) {
  const std::size_t n = values.size();
  const ByteVector bytes = by_reference([&] { return encoded(format, values.data(), n); });
  const ByteVector random = by_reference([&] { return encoded(format, values.data(), n, &kStream); });
  const auto floats = by_reference([&] { return decoded(format, bytes.data(), n); });
  const auto sums = by_reference([&] { return decoded_add(format, bytes.data(), addend.data(), n); });
  on_every_simd([&] {
    ASSERT_EQ(encoded(format, values.data(), n), bytes);
    ASSERT_EQ(encoded(format, values.data(), n, &kStream), random);
    ASSERT_EQ(decoded(format, bytes.data(), n), floats);
    ASSERT_EQ(decoded_add(format, bytes.data(), addend.data(), n), sums);
    ASSERT_EQ(decoded_add_in_place(format, bytes.data(), addend), sums);
  });
}

TEST(Minmax, every_target_equals_the_reference_at_every_tail) {
  const ValueFamily normal = finite_families()[0];
  for (const int bits : kWidths) {
    for (std::size_t n = 0; n <= 130; ++n) {
      for (const std::uint32_t bucket_size : {37u, 64u}) {
        SCOPED_TRACE("bits " + std::to_string(bits) + ", bucket " + std::to_string(bucket_size) + ", n " +
                     std::to_string(n));
        expect_same_as_reference({bits, bucket_size}, normal.values(n, 1), normal.values(n, 2));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Minmax, every_target_equals_the_reference_for_every_kind_of_value) {
  constexpr std::size_t kCount = 2100;
  const std::vector<float> addend = families_with_nonfinite().back().values(kCount, 4);
  for (const ValueFamily& family : families_with_nonfinite()) {
    const std::vector<float> values = family.values(kCount, 3);
    for (const int bits : kWidths) {
      for (const std::uint32_t bucket_size : {1u, 7u, 64u, 1000u, 1024u, 65536u}) {
        SCOPED_TRACE(family.name + ", bits " + std::to_string(bits) + ", bucket " + std::to_string(bucket_size));
        expect_same_as_reference({bits, bucket_size}, values, addend);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Minmax, alignment_does_not_matter) {
  constexpr std::size_t kCount = 1100;
  const std::vector<float> values = finite_families()[0].values(kCount + 16, 5);
  on_every_simd([&] {
    for (const int bits : kWidths) {
      const MinmaxFormat format{bits, 100};
      for (std::size_t shift = 1; shift <= 15; shift += 2) {
        const ByteVector bytes = encoded(format, values.data() + shift, kCount, nullptr, shift);
        ASSERT_EQ(bytes, by_reference([&] { return encoded(format, values.data() + shift, kCount); }));
        ByteVector moved(shift, kCanary);
        moved.insert(moved.end(), bytes.begin(), bytes.end());
        ASSERT_EQ(decoded(format, moved.data() + shift, kCount, shift), decoded(format, bytes.data(), kCount));
      }
    }
  });
}

TEST(Minmax, any_bytes_decode_alike_on_every_target) {
  Random random(6);
  on_every_simd([&] {
    for (const int bits : kWidths) {
      for (int round = 0; round < 200; ++round) {
        const MinmaxFormat format{bits, 1 + static_cast<std::uint32_t>(random() % 70)};
        const std::size_t n = random() % 300;
        ByteVector bytes(minmax_encoded_bytes(format, n));
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
        const std::vector<float> addend = families_with_nonfinite().back().values(n, 7);
        ASSERT_EQ(decoded(format, bytes.data(), n), by_reference([&] { return decoded(format, bytes.data(), n); }));
        ASSERT_EQ(decoded_add(format, bytes.data(), addend.data(), n),
                  by_reference([&] { return decoded_add(format, bytes.data(), addend.data(), n); }));
      }
    }
  });
}

// Header {unit, minimum}, then the codes; checked by hand.
struct Golden {
  int bits;
  std::vector<float> values;
  std::vector<int> bytes;
};

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
      // equal values: the smallest unit 2^-126 = 00800000, minimum 1
      {8, {1, 1}, {0, 0, 0x80, 0x00, 0, 0, 0x80, 0x3F, 0, 0}},
      // not finite: both header fields the canonical NaN
      {8, {1, -std::numeric_limits<float>::infinity()}, {0, 0, 0xC0, 0x7F, 0, 0, 0xC0, 0x7F, 0, 0}},
  };
  on_every_simd([&] {
    for (const Golden& golden : goldens) {
      const MinmaxFormat format{golden.bits, 1024};
      ByteVector expected;
      for (const int byte : golden.bytes) expected.push_back(static_cast<std::byte>(byte));
      EXPECT_EQ(encoded(format, golden.values.data(), golden.values.size()), expected) << "bits " << golden.bits;
    }
  });
}

TEST(Minmax, golden_codes_run_on_across_buckets) {
  // Two buckets of three: unit 1/7 of 7 and of 14; codes 0 7 1 | 7 0 2, then 18 bits in three bytes.
  const std::vector<float> values = {0, 7, 1, 14, 0, 4};
  const std::vector<int> expected = {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0x78, 0x0E, 0x01};
  on_every_simd([&] {
    const ByteVector bytes = encoded({3, 3}, values.data(), values.size());
    ASSERT_EQ(bytes.size(), expected.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << i;
  });
}

}  // namespace
}  // namespace qccl::kernels
