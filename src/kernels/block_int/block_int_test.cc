// Every instruction set against the scalar reference, byte for byte, and the layout of the bytes.
#include "kernels/block_int/block_int.h"

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_int/block_int_reference.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr std::array kWidths = {2, 3, 4, 5, 6, 7, 8};
constexpr std::byte kCanary{0xA5};
constexpr RandomStream kStream{.key = 11, .first_element = 12345, .rank = 1, .world = 3};

using ByteVector = std::vector<std::byte>;

// Encodes into memory of exactly the right size, `shift` bytes off alignment.
ByteVector encoded(BlockIntFormat format, const float* source, std::size_t n, const RandomStream* random = nullptr,
                   std::size_t shift = 0) {
  ByteVector memory(shift + block_int_encoded_bytes(format, n) + 1, kCanary);
  block_int_encode(format, source, n, memory.data() + shift, random);
  EXPECT_EQ(memory.back(), kCanary);
  for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(memory[i], kCanary);
  return {memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end() - 1};
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

std::vector<std::uint32_t> decoded(BlockIntFormat format, const std::byte* source, std::size_t n,
                                   std::size_t shift = 0) {
  std::vector<float> memory(shift + n + 1, -7.0f);
  block_int_decode(format, source, memory.data() + shift, n);
  EXPECT_EQ(memory.back(), -7.0f);
  return bits_of({memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end() - 1});
}

std::vector<std::uint32_t> decoded_add(BlockIntFormat format, const std::byte* source, const float* addend,
                                       std::size_t n) {
  std::vector<float> memory(n + 1, -7.0f);
  block_int_decode_add(format, source, addend, memory.data(), n);
  EXPECT_EQ(memory.back(), -7.0f);
  return bits_of({memory.begin(), memory.end() - 1});
}

std::vector<std::uint32_t> decoded_add_in_place(BlockIntFormat format, const std::byte* source,
                                                std::vector<float> sum) {
  block_int_decode_add(format, source, sum.data(), sum.data(), sum.size());
  return bits_of(sum);
}

// On every target; the reference is computed once.
void expect_same_as_reference(BlockIntFormat format, const std::vector<float>& values,
                              const std::vector<float>& addend) {
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

TEST(BlockInt, every_target_equals_the_reference_at_every_tail) {
  const ValueFamily normal = finite_families()[0];
  for (const int bits : kWidths) {
    for (std::size_t n = 0; n <= 200; ++n) {
      for (const std::uint32_t block_size : {37u, 64u}) {
        SCOPED_TRACE("bits " + std::to_string(bits) + ", block " + std::to_string(block_size) + ", n " +
                     std::to_string(n));
        expect_same_as_reference({bits, block_size}, normal.values(n, 1), normal.values(n, 2));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(BlockInt, every_target_equals_the_reference_for_every_kind_of_value) {
  constexpr std::size_t kCount = 2500;
  const std::vector<float> addend = families_with_nonfinite().back().values(kCount, 4);
  for (const ValueFamily& family : families_with_nonfinite()) {
    const std::vector<float> values = family.values(kCount, 3);
    for (const int bits : kWidths) {
      for (const std::uint32_t block_size : {1u, 7u, 32u, 96u, 128u, 1000u, 1024u, 65536u}) {
        SCOPED_TRACE(family.name + ", bits " + std::to_string(bits) + ", block " + std::to_string(block_size));
        expect_same_as_reference({bits, block_size}, values, addend);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Groups of blocks, runs within a block, and their ends.
TEST(BlockInt, every_target_equals_the_reference_around_the_sizes_of_groups) {
  const std::vector<float> values = finite_families()[0].values(21000, 5);
  for (const int bits : {4, 7, 8}) {
    for (const std::uint32_t block_size : {32u, 256u, 288u, 512u, 736u, 992u, 1056u, 1088u, 4160u, 6400u, 10000u}) {
      for (const std::size_t n : {4095u, 4096u, 4097u, 8200u, 21000u}) {
        SCOPED_TRACE("bits " + std::to_string(bits) + ", block " + std::to_string(block_size) + ", n " +
                     std::to_string(n));
        const std::vector<float> part(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
        expect_same_as_reference({bits, block_size}, part, part);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(BlockInt, alignment_does_not_matter) {
  constexpr std::size_t kCount = 1100;
  const std::vector<float> values = finite_families()[0].values(kCount + 16, 5);
  on_every_simd([&] {
    for (const int bits : kWidths) {
      const BlockIntFormat format{bits, 96};
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

// Buffers have exactly their size, so the address sanitizer sees every byte read out of bounds.
TEST(BlockInt, any_bytes_decode_alike_on_every_target) {
  Random random(6);
  on_every_simd([&] {
    for (const int bits : kWidths) {
      for (int round = 0; round < 200; ++round) {
        const bool whole = round % 2 == 0;
        const BlockIntFormat format{bits, whole ? 32 + 32 * static_cast<std::uint32_t>(random() % 4)
                                                : 1 + static_cast<std::uint32_t>(random() % 70)};
        const std::size_t n = random() % 300;
        const std::size_t size = block_int_encoded_bytes(format, n);
        const auto bytes = std::make_unique<std::byte[]>(size);
        for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(random());
        const std::vector<float> addend = families_with_nonfinite().back().values(n, 7);
        SCOPED_TRACE("bits " + std::to_string(bits) + ", block " + std::to_string(format.block_size) + ", n " +
                     std::to_string(n));
        ASSERT_EQ(decoded(format, bytes.get(), n), by_reference([&] { return decoded(format, bytes.get(), n); }));
        ASSERT_EQ(decoded_add(format, bytes.get(), addend.data(), n),
                  by_reference([&] { return decoded_add(format, bytes.get(), addend.data(), n); }));
      }
    }
  });
}

// Scales that no encoder writes: NaN, infinite, negative, zero, too small, too large.
TEST(BlockInt, a_scale_out_of_range_decodes_to_nan) {
  on_every_simd([&] {
    for (const int bits : kWidths) {
      const auto above_largest = static_cast<std::uint16_t>((reference::largest_scale_bits(bits) >> 16) + 1);
      const std::array<std::uint16_t, 10> scales = {0x7FC0, 0x7F81, 0xFFC0, 0x7F80, 0xFF80,
                                                    0xBF80, 0x8000, 0x0000, 0x047F, above_largest};
      for (const std::uint16_t scale : scales) {
        const BlockIntFormat format{bits, 32};
        ByteVector bytes = encoded(format, std::vector<float>(96, 1.0f).data(), 96);
        std::memcpy(bytes.data() + kBlockScaleBytes, &scale, sizeof(scale));
        const auto values = decoded(format, bytes.data(), 96);
        for (std::size_t i = 32; i < 64; ++i) ASSERT_EQ(values[i], 0x7FC00000u) << bits << " " << scale;
        ASSERT_NE(values[31], 0x7FC00000u);
        ASSERT_NE(values[64], 0x7FC00000u);
      }
    }
  });
}

// Scales, then the integers; checked by hand.
struct Golden {
  int bits;
  std::vector<float> values;
  std::vector<int> bytes;
};

TEST(BlockInt, golden_vectors) {
  const std::vector<Golden> goldens = {
      // scale 1 = 3F80; integers 1 0 -1 1 -> 01 11 00 01
      {2, {1, 0.5f, -1, 0.75f}, {0x80, 0x3F, 0x71}},
      // scale 1; integers 3 -3 0 1 -1 2 -2 0 -> 000 110 010 111 001 000 101 011
      {3, {3, -3, 0, 1, -1, 2, -2, -0.0f}, {0x80, 0x3F, 0x2B, 0x72, 0x19}},
      // scale 1; ties go to even: 7 2 2 -4 -> 7 2 2 C
      {4, {7, 1.5f, 2.5f, -3.5f}, {0x80, 0x3F, 0x27, 0xC2}},
      // scale 2 = 4000; integers 15 -15 -> 10001 01111
      {5, {30, -30}, {0x00, 0x40, 0x2F, 0x02}},
      // scale 1; integers 31 -31 2 -> 000010 100001 011111
      {6, {31, -31, 2}, {0x80, 0x3F, 0x5F, 0x28, 0x00}},
      // scale 1; integers 63 -1 -> 1111111 0111111
      {7, {63, -1}, {0x80, 0x3F, 0xBF, 0x3F}},
      {8, {127, -127, 0.5f, 1.5f, -0.0f}, {0x80, 0x3F, 0x7F, 0x81, 0x00, 0x02, 0x00}},
      // 1 / 127 = 3C010204 goes up to 3C02 = 0.0079345703, of which 1 is 126.03
      {8, {1}, {0x02, 0x3C, 0x7E}},
      // zeros: the smallest scale 2^-118 = 0480
      {8, {0, 0}, {0x80, 0x04, 0x00, 0x00}},
      // the largest scale, 1.9921875 * 2^127 = 7F7F, which is below FLT_MAX
      {2, {std::numeric_limits<float>::max(), 0}, {0x7F, 0x7F, 0x01}},
      // not finite: the scale NaN, integers 0
      {8, {1, -std::numeric_limits<float>::infinity()}, {0xC0, 0x7F, 0x00, 0x00}},
  };
  on_every_simd([&] {
    for (const Golden& golden : goldens) {
      const BlockIntFormat format{golden.bits, 128};
      ByteVector expected;
      for (const int byte : golden.bytes) expected.push_back(static_cast<std::byte>(byte));
      EXPECT_EQ(encoded(format, golden.values.data(), golden.values.size()), expected) << "bits " << golden.bits;
    }
  });
}

TEST(BlockInt, golden_codes_run_on_across_blocks) {
  // Two blocks of three: scales 1 and 2; integers 3 0 -1 | 3 -3 0, then 18 bits in three bytes.
  const std::vector<float> values = {3, 0, -1, 6, -6, 0};
  const std::vector<int> expected = {0x80, 0x3F, 0x00, 0x40, 0xC3, 0x57, 0x00};
  on_every_simd([&] {
    const ByteVector bytes = encoded({3, 3}, values.data(), values.size());
    ASSERT_EQ(bytes.size(), expected.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << i;
  });
}

}  // namespace
}  // namespace qccl::kernels
