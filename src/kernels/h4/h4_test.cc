// Every instruction set against the scalar reference, byte for byte, and the layout of the bytes.
#include "kernels/h4/h4.h"

#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/h4/h4_reference.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr std::array kWidths = {2, 3, 4};
constexpr std::byte kCanary{0xA5};

using ByteVector = std::vector<std::byte>;

// Encodes into memory of exactly the right size, `shift` bytes off alignment.
ByteVector encoded(H4Format format, H4Signs signs, const float* source, std::size_t n, std::size_t shift = 0) {
  ByteVector memory(shift + h4_encoded_bytes(format.bits, n) + 1, kCanary);
  h4_encode(format, signs, source, n, memory.data() + shift);
  EXPECT_EQ(memory.back(), kCanary);
  for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(memory[i], kCanary);
  return {memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end() - 1};
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

std::vector<std::uint32_t> decoded(int bits, const std::byte* source, std::size_t n, std::size_t shift = 0) {
  std::vector<float> memory(shift + n + 1, -7.0f);
  h4_decode(bits, source, memory.data() + shift, n);
  EXPECT_EQ(memory.back(), -7.0f);
  return bits_of({memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end() - 1});
}

std::vector<std::uint32_t> decoded_add(int bits, const std::byte* source, const float* addend, std::size_t n,
                                       std::size_t shift = 0) {
  std::vector<float> memory(shift + n + 1, -7.0f);
  h4_decode_add(bits, source, addend, memory.data() + shift, n);
  EXPECT_EQ(memory.back(), -7.0f);
  return bits_of({memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end() - 1});
}

std::vector<std::uint32_t> decoded_add_in_place(int bits, const std::byte* source, std::vector<float> sum) {
  h4_decode_add(bits, source, sum.data(), sum.data(), sum.size());
  return bits_of(sum);
}

// On every target; the reference is computed once.
void expect_same_as_reference(H4Format format, H4Signs signs, const std::vector<float>& values,
                              const std::vector<float>& addend) {
  const std::size_t n = values.size();
  const ByteVector bytes = by_reference([&] { return encoded(format, signs, values.data(), n); });
  const auto floats = by_reference([&] { return decoded(format.bits, bytes.data(), n); });
  const auto sums = by_reference([&] { return decoded_add(format.bits, bytes.data(), addend.data(), n); });
  on_every_simd([&] {
    ASSERT_EQ(encoded(format, signs, values.data(), n), bytes);
    ASSERT_EQ(decoded(format.bits, bytes.data(), n), floats);
    ASSERT_EQ(decoded_add(format.bits, bytes.data(), addend.data(), n), sums);
    ASSERT_EQ(decoded_add_in_place(format.bits, bytes.data(), addend), sums);
  });
}

// Blocks of few nonzero elements, of one magnitude, and with heavy tails.
std::vector<ValueFamily> structured_families() {
  const auto hot = [](std::size_t every) {
    return [every](Random& r, std::size_t) { return r() % every == 0 ? (r() % 2 == 0 ? 1.0f : -1.0f) : 0.0f; };
  };
  return {{"about 2 of 256 hot", hot(128)},
          {"about 16 of 256 hot", hot(16)},
          {"about 64 of 256 hot", hot(4)},
          {"one hot", [](Random&, std::size_t i) { return i % 256 == 77 ? -3.0f : 0.0f; }},
          {"one magnitude", [](Random& r, std::size_t) { return r() % 2 == 0 ? 0.75f : -0.75f; }},
          {"heavy tails", [](Random& r, std::size_t) { return std::student_t_distribution<float>(2)(r); }}};
}

std::vector<ValueFamily> all_families() {
  std::vector<ValueFamily> families = families_with_nonfinite();
  for (ValueFamily& family : structured_families()) families.push_back(std::move(family));
  return families;
}

TEST(H4, every_target_equals_the_reference_at_every_tail) {
  const ValueFamily normal = finite_families()[0];
  for (const int bits : kWidths) {
    for (std::size_t n = 0; n <= 520; ++n) {
      SCOPED_TRACE("bits " + std::to_string(bits) + ", n " + std::to_string(n));
      expect_same_as_reference({bits, true}, {7, static_cast<std::uint32_t>(n)}, normal.values(n, 1),
                               normal.values(n, 2));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// A block that is transformed twice, one of zeros and a part of one among normal blocks.
TEST(H4, alignment_does_not_matter) {
  constexpr std::size_t kCount = 256 * 5 + 100;
  std::vector<float> values = finite_families()[0].values(kCount + 16, 5);
  std::fill(values.begin() + 300, values.begin() + 512 + 256, 0.0f);
  values[400] = -3.0f;
  on_every_simd([&] {
    for (const int bits : kWidths) {
      for (std::size_t shift = 1; shift <= 15; shift += 2) {
        const float* source = values.data() + shift;
        const ByteVector bytes = encoded({bits, true}, {8, 9}, source, kCount, shift);
        ASSERT_EQ(bytes, by_reference([&] { return encoded({bits, true}, {8, 9}, source, kCount); }));
        ByteVector moved(shift, kCanary);
        moved.insert(moved.end(), bytes.begin(), bytes.end());
        ASSERT_EQ(decoded(bits, moved.data() + shift, kCount, shift), decoded(bits, bytes.data(), kCount));
        const std::vector<float> addend(source, source + kCount);
        const auto sums = by_reference([&] { return decoded_add(bits, bytes.data(), addend.data(), kCount); });
        ASSERT_EQ(decoded_add(bits, moved.data() + shift, source, kCount, shift), sums);
      }
    }
  });
}

TEST(H4, every_target_equals_the_reference_for_every_kind_of_value) {
  constexpr std::size_t kCount = 256 * 20 + 100;
  const std::vector<float> addend = families_with_nonfinite().back().values(kCount, 4);
  for (const ValueFamily& family : all_families()) {
    const std::vector<float> values = family.values(kCount, 3);
    for (const int bits : kWidths) {
      for (const bool unbiased : {true, false}) {
        SCOPED_TRACE(family.name + ", bits " + std::to_string(bits) + (unbiased ? ", unbiased" : ""));
        expect_same_as_reference({bits, unbiased}, {0x1234567u * static_cast<std::uint32_t>(bits), 4000000000u}, values,
                                 addend);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace qccl::kernels
