// For tests: what holds for every codec's kernels. Each instruction set gives the bytes of the scalar reference, at
// every tail and alignment and for every kind of value; decoding any bytes stays within bounds and ends alike on all.
//
// A Kernel describes one codec's kernels to the contract:
//
//   Format                            what the functions below take; formats() returns all worth testing
//   text(format)                      for messages
//   kMostTail                         lengths from 0 up to this are tested one by one
//   counts()                          lengths tested with every kind of value
//   kFloatAlignment                   of sources and targets
//   kAddsEverywhere                   false: decode_add() changes only some elements
//   families()                        kinds of values
//   max_bytes(format, n)              upper limit of encode()
//   encode(format, source, n, target)                       returns the bytes written
//   decode(format, source, bytes, addend, target, n)        false: refused
//   encode_with_residual(format, source, n, target, factor, residual)     optional
//
// CodecKernel and FixedSizeKernel have defaults; the latter's encode() returns nothing.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/half.h"
#include "kernels/every_simd.h"
#include "kernels/lanes/random.h"
#include "kernels/reduce/reduce.h"
#include "kernels/test_values.h"

namespace qccl::kernels {

struct CodecKernel {
  static constexpr std::size_t kMostTail = 300;
  static constexpr std::size_t kFloatAlignment = alignof(float);
  static constexpr bool kAddsEverywhere = true;
  static std::vector<std::size_t> counts() { return {2500}; }
  static std::vector<ValueFamily> families() { return families_with_nonfinite(); }
};

// Kernels whose payload's size depends on the format and the number of elements alone.
template <auto kBytes, auto kDecode>
struct FixedSizeKernel : CodecKernel {
  template <class Format>
  static std::size_t max_bytes(const Format& format, std::size_t n) {
    return kBytes(format, n);
  }
  template <class Format>
  static bool decode(const Format& format, const std::byte* source, std::size_t, const float* addend, float* target,
                     std::size_t n) {
    if constexpr (std::is_same_v<decltype(kDecode(format, source, addend, target, n)), bool>) {
      return kDecode(format, source, addend, target, n);
    } else {
      kDecode(format, source, addend, target, n);
      return true;
    }
  }
};

using ByteVector = std::vector<std::byte>;
using FloatVector = std::vector<float>;

// Payloads begin `shift` bytes off alignment, sources and targets `shift` times their alignment.
template <class Kernel>
ByteVector encoded(const typename Kernel::Format& format, const FloatVector& values, std::size_t shift = 0) {
  const auto source = Guarded<float>::input(values, shift * Kernel::kFloatAlignment);
  auto target = Guarded<std::byte>::output(Kernel::max_bytes(format, values.size()), shift);
  std::size_t bytes = target.size();
  if constexpr (std::is_void_v<decltype(Kernel::encode(format, source.data(), 0, target.data()))>) {
    Kernel::encode(format, source.data(), values.size(), target.data());
  } else {
    bytes = Kernel::encode(format, source.data(), values.size(), target.data());
  }
  EXPECT_LE(bytes, target.size());
  return {target.data(), target.data() + std::min(bytes, target.size())};
}

// An example of one bucket, checked by hand.
struct Golden {
  int bits;
  FloatVector values;
  std::vector<int> bytes;
};

template <class Kernel>
void expect_bytes(const typename Kernel::Format& format, const FloatVector& values, const std::vector<int>& bytes) {
  ByteVector expected;
  for (const int byte : bytes) expected.push_back(static_cast<std::byte>(byte));
  on_every_simd([&] { EXPECT_EQ(encoded<Kernel>(format, values), expected) << Kernel::text(format); });
}

template <class Kernel>
class CodecKernelContract : public ::testing::Test {
 protected:
  using Format = typename Kernel::Format;

  static Guarded<float> input(const FloatVector& values, std::size_t shift) {
    return Guarded<float>::input(values, shift * Kernel::kFloatAlignment);
  }
  static Guarded<float> output(const FloatVector& before, std::size_t shift) {
    return Guarded<float>::output(before, shift * Kernel::kFloatAlignment);
  }

  struct Decoded {
    bool accepted = true;
    std::vector<std::uint32_t> values{}, sums{}, sums_in_place{};  // bits; empty if refused
    bool operator==(const Decoded&) const = default;
  };
  static Decoded decoded(const Format& format, const ByteVector& payload, const FloatVector& addend,
                         std::size_t shift = 0) {
    const std::size_t n = addend.size();
    const Guarded<std::byte> source = Guarded<std::byte>::input(payload, shift);
    const Guarded<float> from = input(addend, shift);
    Guarded<float> values = output(FloatVector(n), shift), sums = output(FloatVector(n), shift);
    Guarded<float> in_place = output(addend, shift);
    const auto decode = [&](const float* add, float* target) {
      return Kernel::decode(format, source.data(), payload.size(), add, target, n);
    };
    const bool decodes = decode(nullptr, values.data());
    EXPECT_EQ(decode(from.data(), sums.data()), decodes);
    EXPECT_EQ(decode(in_place.data(), in_place.data()), decodes);
    if (!decodes) return {.accepted = false};
    for (std::size_t i = 0; Kernel::kAddsEverywhere && i < n; ++i) {
      const float sum = addend[i] + values.data()[i];
      EXPECT_EQ(bits_of(sums.data() + i, 1), bits_of({std::isnan(sum) ? canonical_nan() : sum})) << i;
    }
    return {true, bits_of(values), bits_of(sums), bits_of(in_place)};
  }

  // Checks encode_with_residual() against its definition.
  static void expect_residual(const Format& format, const FloatVector& values, const FloatVector& before,
                              const ByteVector& payload, const Decoded& expected, std::size_t shift) {
    if constexpr (requires { &Kernel::encode_with_residual; }) {
      for (const float factor : {1.0f, 3.0f}) {
        FloatVector residual = before, sent(values.size());
        if (!sent.empty()) std::memcpy(sent.data(), expected.values.data(), sent.size() * sizeof(float));
        by_reference([&] {
          keep_residual(values.data(), sent.data(), factor, residual.data(), residual.size());
          return true;
        });
        const Guarded<float> source = input(values, shift);
        Guarded<float> kept = output(before, shift);
        Guarded<std::byte> target = Guarded<std::byte>::output(payload.size(), shift);
        Kernel::encode_with_residual(format, source.data(), values.size(), target.data(), factor, kept.data());
        ASSERT_TRUE(std::equal(payload.begin(), payload.end(), target.data())) << "encode_with_residual()";
        ASSERT_EQ(bits_of(kept), bits_of(residual)) << "times " << factor;
      }
    }
  }

  static void expect_same_as_reference(const Format& format, const FloatVector& values, const FloatVector& addend,
                                       std::size_t shift) {
    const ByteVector payload = by_reference([&] { return encoded<Kernel>(format, values); });
    const Decoded expected = by_reference([&] { return decoded(format, payload, addend); });
    ASSERT_TRUE(expected.accepted);
    ASSERT_EQ(expected.sums, expected.sums_in_place);
    on_every_simd([&] {
      if (shift == 0 && simd_target() == std::string("scalar")) return;  // is what the others are compared with
      ASSERT_EQ(encoded<Kernel>(format, values, shift), payload);
      const Decoded actual = decoded(format, payload, addend, shift);
      ASSERT_EQ(actual.values, expected.values);
      ASSERT_EQ(actual.sums, expected.sums);
      ASSERT_EQ(actual.sums_in_place, expected.sums);
      expect_residual(format, values, addend, payload, expected, shift);
    });
  }

  static std::string text(const Format& format, std::size_t n) {
    return Kernel::text(format) + ", " + std::to_string(n) + " elements";
  }
};

TYPED_TEST_SUITE_P(CodecKernelContract);

TYPED_TEST_P(CodecKernelContract, every_target_equals_the_reference_at_every_tail) {
  const auto families = TypeParam::families();
  for (const auto& format : TypeParam::formats()) {
    for (std::size_t n = 0; n <= TypeParam::kMostTail; ++n) {
      SCOPED_TRACE(this->text(format, n));
      const ValueFamily& family = n % 2 == 0 ? families[0] : families[n % families.size()];
      this->expect_same_as_reference(format, family.values(n, 1), families[0].values(n, 2), n % 5);
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST_P(CodecKernelContract, every_target_equals_the_reference_for_every_kind_of_value) {
  for (const std::size_t n : TypeParam::counts()) {
    const std::vector<float> addend = families_with_nonfinite().back().values(n, 4);
    for (const ValueFamily& family : TypeParam::families()) {
      const std::vector<float> values = family.values(n, 3);
      for (const auto& format : TypeParam::formats()) {
        SCOPED_TRACE(family.name + ", " + this->text(format, n));
        this->expect_same_as_reference(format, values, addend, 0);
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST_P(CodecKernelContract, alignment_does_not_matter) {
  const std::size_t n = TypeParam::counts().back() + 13;
  const std::vector<float> values = finite_families()[0].values(n, 5);
  for (const auto& format : TypeParam::formats()) {
    for (std::size_t shift = 1; shift <= 15; shift += 2) {
      SCOPED_TRACE(this->text(format, n) + ", shift " + std::to_string(shift));
      this->expect_same_as_reference(format, values, values, shift);
      if (this->HasFatalFailure()) return;
    }
  }
}

// Random bytes, and valid payloads with a few damaged ones, anywhere or at the front.
TYPED_TEST_P(CodecKernelContract, any_bytes_decode_alike_and_within_bounds) {
  const auto families = TypeParam::families();
  const auto formats = TypeParam::formats();
  Random random(6);
  for (const auto& format : formats) {
    for (std::size_t round = 0; round < 40 + 3000 / formats.size(); ++round) {
      const std::size_t n = random() % (round % 10 == 0 ? TypeParam::counts().back() : TypeParam::kMostTail);
      const auto values = families[random() % families.size()].values(n, random());
      auto payload = by_reference([&] { return encoded<TypeParam>(format, values); });
      for (std::size_t i = 0; i < payload.size(); ++i) {
        const bool damaged = round % 3 == 0 || (round % 3 == 1 && random() % payload.size() < 3);
        if (damaged) payload[i] = static_cast<std::byte>(random());
      }
      if (round % 3 == 2 && n > 0)
        payload[random() % std::min<std::size_t>(4, payload.size())] ^= std::byte{1} << random() % 8;
      const auto addend = families_with_nonfinite().back().values(n, 7);
      const auto expected = by_reference([&] { return this->decoded(format, payload, addend); });
      SCOPED_TRACE(this->text(format, n) + ", round " + std::to_string(round));
      on_every_simd([&] { ASSERT_TRUE(this->decoded(format, payload, addend, round % 16) == expected); });
      if (this->HasFatalFailure()) return;
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(CodecKernelContract, every_target_equals_the_reference_at_every_tail,
                            every_target_equals_the_reference_for_every_kind_of_value, alignment_does_not_matter,
                            any_bytes_decode_alike_and_within_bounds);

// ---- The promises of random rounding, on buckets whose step is 1.

// A codec's bucket whose step is 1, because it ends with `ends`; its other elements lie between `low` and `high`.
struct UnitSteps {
  int low, high;
  std::vector<float> ends;
  // Encodes and decodes one bucket.
  std::function<std::vector<float>(const std::vector<float>& x, const RandomStream& random)> round_trip;

  // `size` elements, those of make(index), and the ends.
  template <class Make>
  std::vector<float> bucket(std::size_t size, Make make) const {
    std::vector<float> x(size);
    for (std::size_t i = 0; i < size; ++i) x[i] = make(i);
    x.insert(x.end(), ends.begin(), ends.end());
    return x;
  }
};

// Values spread evenly over the fractions between whole numbers: their errors have a mean square of f (1 - f), 1/6 on
// average.
inline void expect_right_mean_and_variance(const UnitSteps& steps, int rounds) {
  constexpr std::size_t kSize = 512;
  Random random(41);
  const auto x = steps.bucket(kSize, [&](std::size_t i) {
    const int whole = steps.low + static_cast<int>(random() % static_cast<unsigned>(steps.high - steps.low));
    return static_cast<float>(whole) + (static_cast<float>(i) + 0.5f) / static_cast<float>(kSize);
  });
  std::vector<double> sum(kSize), squares(kSize);
  for (int key = 0; key < rounds; ++key) {
    const auto y = steps.round_trip(x, {.key = static_cast<std::uint64_t>(key), .first_element = 1000});
    for (std::size_t i = 0; i < kSize; ++i) {
      const double error = static_cast<double>(y[i]) - x[i];
      ASSERT_LT(std::fabs(error), 1.0);
      sum[i] += error;
      squares[i] += error * error;
    }
  }
  double mean_square = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    const double mean = sum[i] / rounds;
    ASSERT_LE(std::fabs(mean), 4 * std::sqrt(0.25 / rounds) + 1.0 / 512) << x[i];
    ASSERT_LE(squares[i] / rounds - mean * mean, 0.25 + 1e-9) << "rounds to more than two values";
    mean_square += squares[i] / rounds / kSize;
  }
  EXPECT_NEAR(mean_square, 1.0 / 6, 0.03 / 6);
}

// Variance, in steps^2, of the sum over ranks of their errors.
inline double variance_of_sum(const UnitSteps& steps, std::uint32_t world, bool same_input, bool stratified) {
  constexpr std::size_t kSize = 1024;
  Random random(44);
  double squares = 0;
  const std::uint64_t rounds = 1200 / world + 40;
  for (std::uint64_t key = 0; key < rounds; ++key) {
    std::vector<double> sum(kSize);
    std::vector<float> x;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      if (rank == 0 || !same_input) {
        x = steps.bucket(kSize, [&](std::size_t) {
          return uniform(random, static_cast<float>(steps.low), static_cast<float>(steps.high));
        });
      }
      const RandomStream together{.key = key, .rank = rank, .world = world}, apart{.key = key * world + rank};
      const auto y = steps.round_trip(x, stratified ? together : apart);
      for (std::size_t i = 0; i < kSize; ++i) sum[i] += static_cast<double>(y[i]) - x[i];
    }
    for (const double error : sum) squares += error * error;
  }
  return squares / static_cast<double>(rounds * kSize);
}

inline void expect_errors_of_ranks_cancel(const UnitSteps& steps) {
  for (const std::uint32_t world : {1u, 2u, 4u, 8u, 32u}) {
    const double n = world;
    EXPECT_NEAR(variance_of_sum(steps, world, false, true), (n + 1) / 12, 0.05 * (n + 1) / 12) << world;
    EXPECT_NEAR(variance_of_sum(steps, world, true, true), 1.0 / 6, 0.05 / 6) << world;
    EXPECT_NEAR(variance_of_sum(steps, world, false, false), n / 6, 0.05 * n / 6) << world;
  }
}

}  // namespace qccl::kernels
