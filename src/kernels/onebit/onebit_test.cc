// Every instruction set against the scalar reference, byte for byte, and the reference against what onebit.h promises.
#include "kernels/onebit/onebit.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using ByteVector = std::vector<std::byte>;
using FloatVector = std::vector<float>;

// The results of a pass, as bits.
struct Passed {
  std::vector<std::uint32_t> values;
  ByteVector signs;
  std::uint64_t squares = 0;
  bool operator==(const Passed&) const = default;

  double sum() const { return std::bit_cast<double>(squares); }
};

ByteVector bytes_of(const Guarded<std::byte>& bytes) { return {bytes.data(), bytes.data() + bytes.size()}; }

Passed pack(const FloatVector& input, const FloatVector& error, std::size_t shift = 0) {
  const auto from = Guarded<float>::input(input, 3 * shift);
  auto values = Guarded<float>::output(error, shift);
  auto signs = Guarded<std::byte>::output(error.size() / 8, shift);
  const double squares = onebit_pack(from.data(), input.size(), values.data(), error.size(), signs.data());
  return {bits_of(values), bytes_of(signs), std::bit_cast<std::uint64_t>(squares)};
}

Passed sum(const std::vector<ByteVector>& part_signs, const FloatVector& scales, const FloatVector& error,
           std::size_t shift = 0) {
  std::vector<SignedPart> parts;
  for (std::size_t i = 0; i < scales.size(); ++i) parts.push_back({part_signs[i].data(), scales[i]});
  auto values = Guarded<float>::output(error, shift);
  auto signs = Guarded<std::byte>::output(error.size() / 8, shift);
  const double squares = onebit_sum(parts.data(), parts.size(), values.data(), error.size(), signs.data());
  return {bits_of(values), bytes_of(signs), std::bit_cast<std::uint64_t>(squares)};
}

std::vector<std::uint32_t> subtracted(float scale, const FloatVector& error, std::size_t shift = 0) {
  auto values = Guarded<float>::output(error, shift);
  onebit_subtract(scale, values.data(), error.size());
  return bits_of(values);
}

// Checks that both ways of writing give the same.
std::vector<std::uint32_t> expanded(const ByteVector& signs, float scale, std::size_t n, std::size_t shift = 0) {
  auto values = Guarded<float>::output(n, shift), past_cache = Guarded<float>::output(n, shift);
  onebit_expand({signs.data(), scale}, values.data(), n);
  onebit_expand({signs.data(), scale}, past_cache.data(), n, true);
  EXPECT_EQ(bits_of(past_cache), bits_of(values));
  return bits_of(values);
}

ByteVector random_signs(std::size_t n, std::uint32_t seed) {
  Random random(seed);
  ByteVector signs(n / 8 + 8);
  for (std::byte& byte : signs) byte = static_cast<std::byte>(random());
  return signs;
}

// Runs on every target; `n` is a multiple of 8.
void expect_same_as_reference(const FloatVector& input, const FloatVector& error, std::size_t shift) {
  const std::size_t n = error.size();
  const std::vector<ByteVector> signs = {random_signs(n, 1), random_signs(n, 2), random_signs(n, 3)};
  const FloatVector scales = {0.3f, input.empty() ? 1e-3f : input.front(), 1.7f};
  const Passed packed = by_reference([&] { return pack(input, error); });
  const Passed summed = by_reference([&] { return sum(signs, scales, error); });
  const auto left = by_reference([&] { return subtracted(0.7f, error); });
  const auto wide = by_reference([&] { return expanded(signs[0], 0.7f, n); });
  on_every_simd([&] {
    ASSERT_EQ(pack(input, error, shift), packed);
    ASSERT_EQ(sum(signs, scales, error, shift), summed);
    ASSERT_EQ(subtracted(0.7f, error, shift), left);
    ASSERT_EQ(expanded(signs[0], 0.7f, n, shift), wide);
  });
}

TEST(Onebit, every_target_equals_the_reference_at_every_tail_and_alignment) {
  const ValueFamily normal = finite_families()[0];
  for (std::size_t n = 0; n <= 200; n += 8) {
    for (const std::size_t missing : {0u, 1u, 7u, 9u, 40u}) {
      SCOPED_TRACE("n " + std::to_string(n) + ", without " + std::to_string(missing));
      const std::size_t inputs = n - std::min(n, missing);
      expect_same_as_reference(normal.values(inputs, 1), normal.values(n, 2), n / 8 % 16);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Onebit, every_target_equals_the_reference_for_every_kind_of_value) {
  for (const std::size_t n : {4096u, 4096u + 40u, 2u * 4096u + 16u, 12'320u}) {
    for (const ValueFamily& family : families_with_nonfinite()) {
      SCOPED_TRACE(family.name + ", n " + std::to_string(n));
      expect_same_as_reference(family.values(n - n % 3, 3), family.values(n, 4), 1);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Onebit, subtract_and_expand_take_any_length_and_alignment) {
  const FloatVector values = families_with_nonfinite().back().values(200, 5);
  const ByteVector signs = random_signs(200, 6);
  for (std::size_t n = 0; n <= values.size(); ++n) {
    const FloatVector some(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
    const auto left = by_reference([&] { return subtracted(-0.3f, some); });
    const auto wide = by_reference([&] { return expanded(signs, 1e-40f, n); });
    const std::size_t shift = n % 3 == 0 ? n % 64 : 4 * (n % 17);
    on_every_simd([&] {
      ASSERT_EQ(subtracted(-0.3f, some, shift), left);
      ASSERT_EQ(expanded(signs, 1e-40f, n, shift), wide);
    });
  }
}

FloatVector floats_of(const std::vector<std::uint32_t>& bits) {
  FloatVector values(bits.size());
  std::memcpy(values.data(), bits.data(), bits.size() * sizeof(float));
  return values;
}

// The first element is the highest bit; zero of either sign and NaN are positive.
TEST(Onebit, signs_are_packed_as_numpy_packs_bits) {
  const FloatVector input = {1,  -1, 0,  -0.0f, kNan, -1e-45f, 1e-45f, -std::numeric_limits<float>::infinity(),
                             -1, -1, -1, -1,    -1,   -1,      -1,     5};
  on_every_simd([&] {
    const Passed packed = pack(input, FloatVector(16, -0.0f));
    EXPECT_EQ(packed.signs[0], std::byte{0b10111010});
    EXPECT_EQ(packed.signs[1], std::byte{0b00000001});
    EXPECT_TRUE(std::isnan(packed.sum()));
    const auto values = floats_of(expanded(packed.signs, 2.5f, 16));
    EXPECT_EQ(values[0], 2.5f);
    EXPECT_EQ(values[1], -2.5f);
    EXPECT_EQ(values[15], 2.5f);
  });
}

TEST(Onebit, the_sum_of_squares_neither_overflows_nor_vanishes) {
  on_every_simd([&] {
    const FloatVector zeros(4104);
    const double huge = 4104 * (double{3e38f} * double{3e38f});
    EXPECT_NEAR(pack(FloatVector(4104, 3e38f), zeros).sum() / huge, 1, 1e-12);
    EXPECT_EQ(pack(FloatVector(4104, 1e-45f), zeros).sum(), 4104 * (double{1e-45f} * double{1e-45f}));
  });
}

// It subtracts what expand() gives, so that value = expanded + rest.
TEST(Onebit, subtract_takes_what_expand_gives) {
  const FloatVector input = finite_families()[0].values(800, 7);
  on_every_simd([&] {
    const Passed packed = pack(input, FloatVector(800));
    const auto left = floats_of(subtracted(0.75f, input));
    const auto given = floats_of(expanded(packed.signs, 0.75f, 800));
    for (std::size_t i = 0; i < 800; ++i) ASSERT_EQ(left[i], input[i] - given[i]) << i;
  });
}

TEST(Onebit, nan_is_canonical_and_never_becomes_a_number) {
  const FloatVector odd = {-std::nanf("77"), 1, 2, 3, 4, 5, 6, 7};
  on_every_simd([&] {
    const auto packed = floats_of(pack(odd, FloatVector(8)).values);
    EXPECT_EQ(std::memcmp(packed.data(), &kNan, sizeof(float)), 0);
    const auto wide = floats_of(expanded(random_signs(40, 8), -std::nanf("77"), 40));
    const auto left = floats_of(subtracted(kNan, odd));
    for (const float x : wide) EXPECT_EQ(std::memcmp(&x, &kNan, sizeof(float)), 0);
    for (const float x : left) EXPECT_EQ(std::memcmp(&x, &kNan, sizeof(float)), 0);
  });
}

}  // namespace
}  // namespace qccl::kernels
