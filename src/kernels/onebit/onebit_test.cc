// Every instruction set against the scalar reference, byte for byte, and the reference against what onebit.h promises.
#include "kernels/onebit/onebit.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr char kCanary = 0x5A;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Memory = std::vector<char>;

// `n` floats from `values`, `shift` bytes off alignment, with canaries behind.
Memory placed(const std::vector<float>& values, std::size_t shift) {
  Memory memory(shift + values.size() * sizeof(float) + 64, kCanary);
  if (!values.empty()) std::memcpy(memory.data() + shift, values.data(), values.size() * sizeof(float));
  return memory;
}

// The results of a pass: its arrays and its return value, as bytes.
struct Passed {
  Memory values;
  Memory signs;
  double squares = 0;
  bool operator==(const Passed& other) const {
    return values == other.values && signs == other.signs && std::memcmp(&squares, &other.squares, sizeof(double)) == 0;
  }
};

float* floats(Memory& memory, std::size_t shift) { return reinterpret_cast<float*>(memory.data() + shift); }
std::byte* bytes(Memory& memory, std::size_t shift) { return reinterpret_cast<std::byte*>(memory.data() + shift); }

// Removes the `shift` bytes in front, which must be unchanged.
Memory unshifted(const Memory& memory, std::size_t shift) {
  for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(memory[i], kCanary);
  return {memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end()};
}

Passed pack(const std::vector<float>& input, const std::vector<float>& error, std::size_t shift = 0) {
  Memory from = placed(input, 3 * shift);
  Memory values = placed(error, shift);
  Memory signs(shift + error.size() / 8 + 64, kCanary);
  const double squares =
      onebit_pack(floats(from, 3 * shift), input.size(), floats(values, shift), error.size(), bytes(signs, shift));
  return {unshifted(values, shift), unshifted(signs, shift), squares};
}

Passed sum(const std::vector<Memory>& part_signs, const std::vector<float>& scales, const std::vector<float>& error,
           std::size_t shift = 0) {
  std::vector<SignedPart> parts;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    parts.push_back({reinterpret_cast<const std::byte*>(part_signs[i].data()), scales[i]});
  }
  Memory values = placed(error, shift);
  Memory signs(shift + error.size() / 8 + 64, kCanary);
  const double squares =
      onebit_sum(parts.data(), parts.size(), floats(values, shift), error.size(), bytes(signs, shift));
  return {unshifted(values, shift), unshifted(signs, shift), squares};
}

Memory subtracted(float scale, const std::vector<float>& error, std::size_t shift = 0) {
  Memory values = placed(error, shift);
  onebit_subtract(scale, floats(values, shift), error.size());
  return unshifted(values, shift);
}

// Checks that both ways of writing give the same.
Memory expanded(const Memory& signs, float scale, std::size_t n, std::size_t shift = 0) {
  Memory values = placed(std::vector<float>(n, -7.0f), shift);
  Memory past_cache = values;
  const SignedPart part{reinterpret_cast<const std::byte*>(signs.data()), scale};
  onebit_expand(part, floats(values, shift), n);
  onebit_expand(part, floats(past_cache, shift), n, true);
  EXPECT_EQ(past_cache, values);
  return unshifted(values, shift);
}

Memory random_signs(std::size_t n, std::uint32_t seed) {
  Random random(seed);
  Memory signs(n / 8 + 8);
  for (char& byte : signs) byte = static_cast<char>(random());
  return signs;
}

// Runs on every target; `n` is a multiple of 8.
void expect_same_as_reference(const std::vector<float>& input, const std::vector<float>& error, std::size_t shift) {
  const std::size_t n = error.size();
  const std::vector<Memory> signs = {random_signs(n, 1), random_signs(n, 2), random_signs(n, 3)};
  const std::vector<float> scales = {0.3f, input.empty() ? 1e-3f : input.front(), 1.7f};
  const Passed packed = by_reference([&] { return pack(input, error); });
  const Passed summed = by_reference([&] { return sum(signs, scales, error); });
  const Memory left = by_reference([&] { return subtracted(0.7f, error); });
  const Memory wide = by_reference([&] { return expanded(signs[0], 0.7f, n); });
  on_every_simd([&] {
    ASSERT_TRUE(pack(input, error, shift) == packed);
    ASSERT_TRUE(sum(signs, scales, error, shift) == summed);
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
  const std::vector<float> values = families_with_nonfinite().back().values(200, 5);
  const Memory signs = random_signs(200, 6);
  for (std::size_t n = 0; n <= values.size(); ++n) {
    const std::vector<float> some(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
    const Memory left = by_reference([&] { return subtracted(-0.3f, some); });
    const Memory wide = by_reference([&] { return expanded(signs, 1e-40f, n); });
    const std::size_t shift = n % 3 == 0 ? n % 64 : 4 * (n % 17);
    on_every_simd([&] {
      ASSERT_EQ(subtracted(-0.3f, some, shift), left);
      ASSERT_EQ(expanded(signs, 1e-40f, n, shift), wide);
    });
  }
}

std::vector<float> values_of(const Memory& memory, std::size_t n) {
  std::vector<float> values(n);
  std::memcpy(values.data(), memory.data(), n * sizeof(float));
  return values;
}

// The first element is the highest bit; zero of either sign and NaN are positive.
TEST(Onebit, signs_are_packed_as_numpy_packs_bits) {
  const std::vector<float> input = {1,  -1, 0,  -0.0f, kNan, -1e-45f, 1e-45f, -std::numeric_limits<float>::infinity(),
                                    -1, -1, -1, -1,    -1,   -1,      -1,     5};
  on_every_simd([&] {
    const Passed packed = pack(input, std::vector<float>(16, -0.0f));
    EXPECT_EQ(static_cast<unsigned char>(packed.signs[0]), 0b10111010u);
    EXPECT_EQ(static_cast<unsigned char>(packed.signs[1]), 0b00000001u);
    EXPECT_TRUE(std::isnan(packed.squares));
    const auto values = values_of(expanded(packed.signs, 2.5f, 16), 16);
    EXPECT_EQ(values[0], 2.5f);
    EXPECT_EQ(values[1], -2.5f);
    EXPECT_EQ(values[15], 2.5f);
  });
}

TEST(Onebit, the_sum_of_squares_neither_overflows_nor_vanishes) {
  on_every_simd([&] {
    const std::vector<float> zeros(4104);
    const double huge = 4104 * (double{3e38f} * double{3e38f});
    EXPECT_NEAR(pack(std::vector<float>(4104, 3e38f), zeros).squares / huge, 1, 1e-12);
    EXPECT_EQ(pack(std::vector<float>(4104, 1e-45f), zeros).squares, 4104 * (double{1e-45f} * double{1e-45f}));
  });
}

// It subtracts what expand() gives, so that value = expanded + rest.
TEST(Onebit, subtract_takes_what_expand_gives) {
  const std::vector<float> input = finite_families()[0].values(800, 7);
  on_every_simd([&] {
    const Passed packed = pack(input, std::vector<float>(800));
    const auto left = values_of(subtracted(0.75f, input), 800);
    const auto given = values_of(expanded(packed.signs, 0.75f, 800), 800);
    for (std::size_t i = 0; i < 800; ++i) ASSERT_EQ(left[i], input[i] - given[i]) << i;
  });
}

TEST(Onebit, nan_is_canonical_and_never_becomes_a_number) {
  const std::vector<float> odd = {-std::nanf("77"), 1, 2, 3, 4, 5, 6, 7};
  on_every_simd([&] {
    const auto packed = values_of(pack(odd, std::vector<float>(8)).values, 8);
    EXPECT_EQ(std::memcmp(packed.data(), &kNan, sizeof(float)), 0);
    const auto wide = values_of(expanded(random_signs(40, 8), -std::nanf("77"), 40), 40);
    const auto left = values_of(subtracted(kNan, odd), 8);
    for (const float x : wide) EXPECT_EQ(std::memcmp(&x, &kNan, sizeof(float)), 0);
    for (const float x : left) EXPECT_EQ(std::memcmp(&x, &kNan, sizeof(float)), 0);
  });
}

}  // namespace
}  // namespace qccl::kernels
