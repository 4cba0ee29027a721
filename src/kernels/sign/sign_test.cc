// Every instruction set against the scalar reference, byte for byte, at every tail and alignment, and the reference
// against its definition.
#include "kernels/sign/sign.h"

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/reduce/residual.h"
#include "kernels/sign/sign_reference.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr std::byte kCanary{0xA5};
constexpr std::array<std::uint32_t, 11> kBuckets = {1, 3, 7, 8, 32, 64, 72, 100, 1024, 4160, 65536};

using ByteVector = std::vector<std::byte>;
using Bits = std::vector<std::uint32_t>;

Bits bits_of(const float* values, std::size_t n) {
  Bits bits(n);
  if (n > 0) std::memcpy(bits.data(), values, n * sizeof(float));
  return bits;
}

// The bytes that `write` leaves in memory of exactly the right size, `shift` bytes off alignment.
template <class Write>
ByteVector written(std::size_t bytes, std::size_t shift, Write write) {
  ByteVector memory(shift + bytes + 1, kCanary);
  write(memory.data() + shift);
  EXPECT_EQ(memory.back(), kCanary);
  for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(memory[i], kCanary);
  return {memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end() - 1};
}

ByteVector encoded(SignFormat format, const float* source, std::size_t n, std::size_t shift = 0) {
  return written(sign_encoded_bytes(format, n), shift, [=](std::byte* to) { sign_encode(format, source, n, to); });
}

// The floats that `write` leaves in memory that begins `shift` floats after a vector boundary.
template <class Write>
Bits filled(const std::vector<float>& before, std::size_t shift, Write write) {
  std::vector<float> memory(shift, -7.0f);
  memory.insert(memory.end(), before.begin(), before.end());
  memory.push_back(-7.0f);
  write(memory.data() + shift);
  EXPECT_EQ(memory.back(), -7.0f);
  for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(memory[i], -7.0f);
  return bits_of(memory.data() + shift, before.size());
}

struct Owed {
  ByteVector bytes;
  Bits residual;
  bool operator==(const Owed&) const = default;
};
Owed encoded_with_residual(SignFormat format, const float* source, const std::vector<float>& before, float factor,
                           std::size_t shift = 0) {
  Owed owed;
  owed.residual = filled(before, shift, [&](float* residual) {
    owed.bytes = written(sign_encoded_bytes(format, before.size()), shift, [&](std::byte* to) {
      sign_encode_with_residual(format, source, before.size(), to, factor, residual);
    });
  });
  return owed;
}

// The expected result, computed in three steps.
Owed expected_with_residual(SignFormat format, const float* source, const std::vector<float>& before, float factor) {
  const std::size_t n = before.size();
  Owed owed{encoded(format, source, n), {}};
  std::vector<float> decoded(n), residual = before;
  sign_decode(format, owed.bytes.data(), decoded.data(), n);
  keep_residual(source, decoded.data(), factor, residual.data(), n);
  owed.residual = bits_of(residual.data(), n);
  return owed;
}

Bits decoded(SignFormat format, const ByteVector& bytes, std::size_t n, std::size_t shift = 0) {
  ByteVector source(shift, kCanary);
  source.insert(source.end(), bytes.begin(), bytes.end());
  return filled(std::vector<float>(n), shift,
                [&](float* target) { sign_decode(format, source.data() + shift, target, n); });
}
Bits decoded_add(SignFormat format, const ByteVector& bytes, const std::vector<float>& addend) {
  return filled(std::vector<float>(addend.size()), 0,
                [&](float* target) { sign_decode_add(format, bytes.data(), addend.data(), target, addend.size()); });
}
Bits decoded_add_in_place(SignFormat format, const ByteVector& bytes, const std::vector<float>& addend) {
  return filled(addend, 0,
                [&](float* target) { sign_decode_add(format, bytes.data(), target, target, addend.size()); });
}

// On every target; the reference is computed once. `values` begins `shift` floats before the encoded ones.
void expect_same_as_reference(SignFormat format, const std::vector<float>& values, const std::vector<float>& addend,
                              std::size_t shift) {
  const std::size_t n = addend.size();
  const float* const source = values.data() + shift;
  const ByteVector bytes = by_reference([&] { return encoded(format, source, n); });
  const Bits floats = by_reference([&] { return decoded(format, bytes, n); });
  const Bits sums = by_reference([&] { return decoded_add(format, bytes, addend); });
  std::vector<Owed> owed;
  for (const float factor : {1.0f, 3.0f}) {
    owed.push_back(by_reference([&] { return expected_with_residual(format, source, addend, factor); }));
  }
  on_every_simd([&] {
    ASSERT_EQ(encoded(format, source, n, shift), bytes);
    ASSERT_EQ(decoded(format, bytes, n, shift), floats);
    ASSERT_EQ(decoded_add(format, bytes, addend), sums);
    ASSERT_EQ(decoded_add_in_place(format, bytes, addend), sums);
    ASSERT_TRUE(encoded_with_residual(format, source, addend, 1.0f, shift) == owed[0]);
    ASSERT_TRUE(encoded_with_residual(format, source, addend, 3.0f, shift) == owed[1]);
  });
}

TEST(Sign, every_target_equals_the_reference_at_every_tail_and_alignment) {
  const ValueFamily normal = finite_families()[0];
  for (const std::uint32_t bucket : kBuckets) {
    for (std::size_t n = 0; n <= 300; ++n) {
      SCOPED_TRACE("bucket " + std::to_string(bucket) + ", n " + std::to_string(n));
      const std::size_t shift = n % 5;
      expect_same_as_reference({bucket, n % 2 == 1}, normal.values(shift + n, 1), normal.values(n, 2), shift);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Sign, every_target_equals_the_reference_for_every_kind_of_value) {
  constexpr std::size_t kCount = 3 * 4160 + 77;
  const std::vector<float> addend = families_with_nonfinite().back().values(kCount, 4);
  for (const ValueFamily& family : families_with_nonfinite()) {
    const std::vector<float> values = family.values(kCount, 3);
    for (const std::uint32_t bucket : kBuckets) {
      for (const bool norm : {false, true}) {
        SCOPED_TRACE(family.name + ", bucket " + std::to_string(bucket) + (norm ? ", norm" : ", mean"));
        expect_same_as_reference({bucket, norm}, values, addend, 0);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// A residual that overflows stays unchanged: the values are finite, three times the values are not.
TEST(Sign, a_residual_that_overflows_stays_as_it_was) {
  const std::vector<float> values = {0.0f, 3e38f, 1.0f, -3e38f};
  const std::vector<float> before = {5.0f, 6.0f, 7.0f, 8.0f};
  on_every_simd([&] {
    const Owed owed = encoded_with_residual({4, false}, values.data(), before, 3.0f);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(std::bit_cast<float>(owed.residual[i]), before[i]);
  });
}

TEST(Sign, the_bytes_are_scales_and_bits_lowest_first) {
  on_every_simd([&] {
    const float values[] = {1.0f, -2.0f, 0.0f, -0.0f, -5.0f, 3.0f, 1.0f, -1.0f, 2.0f, -6.0f};
    const ByteVector bytes = encoded({6, false}, values, 10);
    ASSERT_EQ(bytes.size(), 2 * 4 + 2);
    std::array<float, 2> scales;
    std::memcpy(scales.data(), bytes.data(), sizeof(scales));
    EXPECT_EQ(scales[0], 11.0f / 6);
    EXPECT_EQ(scales[1], 10.0f / 4);
    EXPECT_EQ(bytes[8], std::byte{0b10010010});
    EXPECT_EQ(bytes[9], std::byte{0b10});
    const ByteVector norm = encoded({6, true}, values, 6);
    std::memcpy(scales.data(), norm.data(), sizeof(float));
    EXPECT_EQ(scales[0], static_cast<float>(std::sqrt(39.0 / 6)));
  });
}

// Even if no float32 holds the sum, or its square.
TEST(Sign, scales_are_right_for_the_largest_and_the_smallest_values) {
  for (const float value : {std::numeric_limits<float>::max(), 3e38f, 1e30f, 1e-30f, 0x1p-149f}) {
    for (const bool norm : {false, true}) {
      const std::vector<float> values(65536, -value);
      on_every_simd([&] {
        const Bits y = decoded({65536, norm}, encoded({65536, norm}, values.data(), values.size()), values.size());
        ASSERT_NEAR(std::bit_cast<float>(y.front()) / value, -1, norm ? 0 : 0x1p-17) << value;
        ASSERT_EQ(y.front(), y.back());
      });
    }
  }
}

TEST(Sign, a_scale_that_no_encoder_writes_decodes_to_nan) {
  const float values[] = {1.0f, -1.0f};
  ByteVector bytes = encoded({}, values, 2);
  on_every_simd([&] {
    for (const std::uint32_t scale : {0x80000000u, 0xBF800000u, 0x7F800000u, 0x7F800001u, 0xFFFFFFFFu, 0xFF800000u}) {
      std::memcpy(bytes.data(), &scale, sizeof(scale));
      EXPECT_EQ(decoded({}, bytes, 2), Bits(2, kCanonicalNanBits)) << scale;
    }
    const std::uint32_t zero = 0;
    std::memcpy(bytes.data(), &zero, sizeof(zero));
    EXPECT_EQ(decoded({}, bytes, 2), (Bits{0, 0x80000000u}));
  });
}

}  // namespace
}  // namespace qccl::kernels
