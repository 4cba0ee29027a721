// Reductions and conversions: every instruction set against the scalar reference, and the reference
// against what reduce.h promises.
#include "kernels/reduce/reduce.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "base/half.h"
#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr std::array kStoredTypes = {DataType::float32, DataType::float64, DataType::int8,   DataType::int16,
                                     DataType::int32,   DataType::int64,   DataType::uint8,  DataType::uint16,
                                     DataType::uint32,  DataType::uint64,  DataType::boolean};
constexpr std::array kHalfTypes = {DataType::float16, DataType::bfloat16};
constexpr std::array kFloatOps = {ReduceOp::sum, ReduceOp::avg,  ReduceOp::min,
                                  ReduceOp::max, ReduceOp::prod, ReduceOp::premul_sum};
constexpr std::array kIntegerOps = {ReduceOp::sum,     ReduceOp::min,    ReduceOp::max,    ReduceOp::prod,
                                    ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor};
constexpr char kCanary = 0x5A;
constexpr std::array<std::uint64_t, 8> kCorners = {0,      1,          ~std::uint64_t{0},  0x80,
                                                   0x8000, 0x80000000, 0x8000000000000000, 0x7FFFFFFFFFFFFFFF};

using Memory = std::vector<char>;

std::span<const ReduceOp> ops_of(DataType type) {
  if (is_floating(type)) return kFloatOps;
  return kIntegerOps;
}

// Interesting bytes for `n` elements of `type`, `shift` bytes off alignment.
Memory operand(DataType type, std::size_t n, std::uint32_t seed, std::size_t shift) {
  Memory memory(shift + n * element_bytes(type), kCanary);
  Random random(seed);
  const auto families = families_with_nonfinite();
  for (std::size_t i = 0; i < n; ++i) {
    char* at = memory.data() + shift + i * element_bytes(type);
    const float value = families[random() % families.size()].draw(random, i);
    const double wide = static_cast<double>(value) * (1 + 0x1p-30);
    const std::uint64_t drawn = (std::uint64_t{random()} << 32 | random()) >> (random() % 64);
    // A quarter are the smallest and largest values, and 0 or all ones of one width or another.
    const std::uint64_t integer = random() % 4 != 0 ? drawn : kCorners[random() % kCorners.size()];
    if (type == DataType::float32)
      std::memcpy(at, &value, 4);
    else if (type == DataType::float64)
      std::memcpy(at, &wide, 8);
    else
      std::memcpy(at, &integer, element_bytes(type));
  }
  return memory;
}

// A fresh result of `bytes`, `shift` bytes off alignment, written by `write`; checks the bytes around it.
template <class Write>
Memory result_of(std::size_t bytes, std::size_t shift, Write write) {
  Memory memory(shift + bytes + 64, kCanary);
  write(memory.data() + shift);
  for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(memory[i], kCanary);
  for (std::size_t i = shift + bytes; i < memory.size(); ++i) EXPECT_EQ(memory[i], kCanary);
  return {memory.begin() + static_cast<std::ptrdiff_t>(shift),
          memory.begin() + static_cast<std::ptrdiff_t>(shift + bytes)};
}

template <class Write>
void expect_same_as_reference(std::size_t bytes, std::size_t shift, Write write) {
  const Memory expected = by_reference([&] { return result_of(bytes, 0, write); });
  ASSERT_EQ(result_of(bytes, shift, write), expected);
}

TEST(Reduce, every_target_equals_the_reference_at_every_tail_and_alignment) {
  on_every_simd([] {
    for (const DataType type : kStoredTypes) {
      for (std::size_t n = 0; n <= 130; ++n) {
        const std::size_t shift = n % 9;
        const Memory a = operand(type, n, 1, shift);
        const Memory b = operand(type, n, 2, n % 4);
        for (const ReduceOp op : ops_of(type)) {
          SCOPED_TRACE(std::string(to_string(type)) + " " + std::string(to_string(op)) + " " + std::to_string(n));
          expect_same_as_reference(n * element_bytes(type), n % 5, [&](char* target) {
            reduce(type, op, target, a.data() + shift, b.data() + n % 4, n);
          });
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST(Reduce, the_target_may_be_either_operand) {
  constexpr std::size_t kCount = 100;
  on_every_simd([] {
    for (const DataType type : kStoredTypes) {
      const Memory a = operand(type, kCount, 3, 0);
      const Memory b = operand(type, kCount, 4, 0);
      for (const ReduceOp op : ops_of(type)) {
        Memory apart(a.size()), first(a), second(b);
        reduce(type, op, apart.data(), a.data(), b.data(), kCount);
        reduce(type, op, first.data(), first.data(), b.data(), kCount);
        reduce(type, op, second.data(), a.data(), second.data(), kCount);
        EXPECT_EQ(first, apart);
        EXPECT_EQ(second, apart);
      }
    }
  });
}

TEST(Reduce, half_types_equal_the_reference_at_every_tail_and_alignment) {
  on_every_simd([] {
    for (const DataType type : kHalfTypes) {
      for (std::size_t n = 0; n <= 130; ++n) {
        const std::size_t shift = n % 3;
        Memory half(shift + 2 * n);
        Random random(5);
        for (char& byte : half) byte = static_cast<char>(random());
        const std::vector<float> addend = families_with_nonfinite().back().values(n, 6);
        for (const ReduceOp op : kFloatOps) {
          expect_same_as_reference(4 * n, 4, [&](char* target) {
            reduce_widened(type, op, reinterpret_cast<float*>(target), addend.data(), half.data() + shift, n);
          });
        }
        expect_same_as_reference(
            4 * n, 4, [&](char* target) { widen(type, reinterpret_cast<float*>(target), half.data() + shift, n); });
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(Reduce, every_half_value_widens_like_the_scalar_conversion) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  on_every_simd([&] {
    for (const DataType type : kHalfTypes) {
      std::vector<float> wide(all.size());
      widen(type, wide.data(), all.data(), all.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        const float expected = type == DataType::float16 ? to_float(float16{all[i]}) : to_float(bfloat16{all[i]});
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << i;
      }
    }
  });
}

// Floats around every boundary between two half values, and over all exponents.
TEST(Reduce, narrowing_equals_the_scalar_conversion) {
  std::vector<float> values;
  Random random(7);
  for (std::uint32_t high = 0; high < 0x10000; high += 3) {
    for (const std::uint32_t low : {0u, 1u, 0x0FFFu, 0x1000u, 0x1001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
    values.push_back(std::bit_cast<float>(high << 16 | static_cast<std::uint32_t>(random() & 0xFFFFu)));
  }
  on_every_simd([&] {
    for (const DataType type : kHalfTypes) {
      std::vector<std::uint16_t> narrowed(values.size());
      narrow(type, narrowed.data(), values.data(), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto expected = type == DataType::float16 ? to_float16(values[i]).bits : to_bfloat16(values[i]).bits;
        ASSERT_EQ(narrowed[i], expected) << std::bit_cast<std::uint32_t>(values[i]);
      }
    }
  });
}

TEST(Reduce, scaling_and_dividing_equal_the_reference_at_every_tail_and_in_place) {
  on_every_simd([] {
    for (const DataType type : {DataType::float32, DataType::float64, DataType::float16, DataType::bfloat16}) {
      for (std::size_t n = 0; n <= 70; ++n) {
        for (const double factor : {0.1, -3.0, 1.0 / 3, 0.25, 0x1p-20, 1e30, 0.0, HUGE_VAL}) {
          const std::size_t shift = n % 7;
          const Memory data = operand(type, n, 9, shift);
          const char* from = data.data() + shift;
          expect_same_as_reference(n * element_bytes(type), n % 5,
                                   [&](char* target) { scale(type, target, from, factor, n); });
          const auto in_place = [&](auto change) {
            expect_same_as_reference(n * element_bytes(type), n % 3, [&](char* target) {
              if (n > 0) std::memcpy(target, from, n * element_bytes(type));
              change(target);
            });
          };
          in_place([&](char* target) { scale(type, target, target, factor, n); });
          if (element_bytes(type) > 2) in_place([&](char* target) { divide(type, target, 1 / factor, n); });
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

// Reduces `count` equal elements on both sides; returns the first result, and checks that vector code and tail agree.
template <class T>
T reduced_integer(DataType type, ReduceOp op, T a, T b) {
  constexpr std::size_t kCount = 300;
  const std::vector<T> left(kCount, a), right(kCount, b);
  std::vector<T> target(kCount);
  reduce(type, op, target.data(), left.data(), right.data(), kCount);
  EXPECT_EQ(target, std::vector<T>(kCount, target[0]));
  return target[0];
}

TEST(Reduce, integers_of_every_width_and_sign_have_their_own_order_and_wrap) {
  on_every_simd([] {
    constexpr auto kMin = ReduceOp::min, kMax = ReduceOp::max, kSum = ReduceOp::sum, kProd = ReduceOp::prod;
    EXPECT_EQ(reduced_integer<std::int8_t>(DataType::int8, kMin, -128, 127), -128);
    EXPECT_EQ(reduced_integer<std::uint8_t>(DataType::uint8, kMin, 128, 127), 127);
    EXPECT_EQ(reduced_integer<std::int16_t>(DataType::int16, kMax, -1, 1), 1);
    EXPECT_EQ(reduced_integer<std::uint16_t>(DataType::uint16, kMax, 65535, 1), 65535);
    EXPECT_EQ(reduced_integer<std::uint32_t>(DataType::uint32, kMin, 0xFFFFFFFFu, 5), 5u);
    EXPECT_EQ(reduced_integer<std::uint64_t>(DataType::uint64, kMax, ~std::uint64_t{0}, 5), ~std::uint64_t{0});
    EXPECT_EQ(reduced_integer<std::int64_t>(DataType::int64, kMax, -1, 5), 5);
    EXPECT_EQ(reduced_integer<std::int8_t>(DataType::int8, kSum, 127, 1), -128);
    constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
    EXPECT_EQ(reduced_integer<std::int32_t>(DataType::int32, kSum, std::numeric_limits<std::int32_t>::max(), 1),
              kLeast);
    EXPECT_EQ(reduced_integer<std::int32_t>(DataType::int32, kMin, kLeast, 1), kLeast);
    EXPECT_EQ(reduced_integer<std::uint8_t>(DataType::uint8, kSum, 200, 100), 44);
    EXPECT_EQ(reduced_integer<std::uint8_t>(DataType::uint8, kProd, 200, 100), 32);
    EXPECT_EQ(reduced_integer<std::int16_t>(DataType::int16, kProd, -32768, -1), -32768);
    EXPECT_EQ(reduced_integer<std::uint32_t>(DataType::uint32, kProd, 0x10001u, 0x10001u), 0x20001u);
    EXPECT_EQ(reduced_integer<std::uint64_t>(DataType::uint64, kProd, 1ull << 63, 3), 1ull << 63);
  });
}

TEST(Reduce, bitwise_operations_of_every_width) {
  on_every_simd([] {
    EXPECT_EQ(reduced_integer<std::uint8_t>(DataType::uint8, ReduceOp::bit_and, 0xF5, 0x3C), 0x34);
    EXPECT_EQ(reduced_integer<std::int16_t>(DataType::int16, ReduceOp::bit_or, 0x0F00, 0x00F1), 0x0FF1);
    EXPECT_EQ(reduced_integer<std::int32_t>(DataType::int32, ReduceOp::bit_xor, -1, 0x55555555), ~0x55555555);
    EXPECT_EQ(reduced_integer<std::uint64_t>(DataType::uint64, ReduceOp::bit_xor, 0xFF00FF0012345678ull,
                                             0xFF00FF0000000000ull),
              0x12345678ull);
  });
}

TEST(Reduce, booleans_take_any_byte_but_zero_as_true_and_give_zero_or_one) {
  on_every_simd([] {
    for (const std::uint8_t a : {0, 1, 2, 0x80, 0xFF}) {
      for (const std::uint8_t b : {0, 1, 0x40, 0x7F}) {
        const auto result = [&](ReduceOp op) { return reduced_integer<std::uint8_t>(DataType::boolean, op, a, b); };
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::bit_or}) EXPECT_EQ(result(op), a || b);
        for (const ReduceOp op : {ReduceOp::prod, ReduceOp::min, ReduceOp::bit_and}) EXPECT_EQ(result(op), a && b);
        EXPECT_EQ(result(ReduceOp::bit_xor), (a != 0) != (b != 0));
      }
    }
  });
}

TEST(Reduce, scaling_rounds_the_product_in_fp32_to_the_type) {
  on_every_simd([] {
    const std::vector<std::uint16_t> source(70, to_float16(3.0f).bits);
    std::vector<std::uint16_t> target(70);
    scale(DataType::float16, target.data(), source.data(), 0.1, 70);
    EXPECT_EQ(target, std::vector<std::uint16_t>(70, to_float16(3.0f * 0.1f).bits));
    const std::vector<float> floats(70, 16777216.0f);
    std::vector<float> scaled(70);
    scale(DataType::float32, scaled.data(), floats.data(), 1.0 + 0x1p-40, 70);  // the factor is also a float
    EXPECT_EQ(scaled, floats);
  });
}

float reduced(ReduceOp op, float a, float b) {
  // More than a vector, so that the middle goes through the vector code.
  const std::vector<float> left(70, a), right(70, b);
  std::vector<float> target(70);
  reduce(DataType::float32, op, target.data(), left.data(), right.data(), 70);
  EXPECT_EQ(bits_of(&target[0], 1), bits_of(&target[69], 1));
  return target[0];
}

TEST(Reduce, nan_wins_and_is_canonical) {
  on_every_simd([] {
    for (const ReduceOp op : kFloatOps) {
      for (const float nan : {std::bit_cast<float>(0x7F800001u), std::bit_cast<float>(0xFFC12345u)}) {
        for (const float other : {1.0f, -HUGE_VALF, HUGE_VALF, std::bit_cast<float>(0xFFFFFFFFu)}) {
          EXPECT_EQ(std::bit_cast<std::uint32_t>(reduced(op, nan, other)), kCanonicalNanBits);
          EXPECT_EQ(std::bit_cast<std::uint32_t>(reduced(op, other, nan)), kCanonicalNanBits);
        }
      }
    }
    EXPECT_EQ(std::bit_cast<std::uint32_t>(reduced(ReduceOp::sum, HUGE_VALF, -HUGE_VALF)), kCanonicalNanBits);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(reduced(ReduceOp::prod, HUGE_VALF, 0.0f)), kCanonicalNanBits);
  });
}

TEST(Reduce, negative_zero_is_less_than_zero) {
  on_every_simd([] {
    EXPECT_TRUE(std::signbit(reduced(ReduceOp::min, 0.0f, -0.0f)));
    EXPECT_TRUE(std::signbit(reduced(ReduceOp::min, -0.0f, 0.0f)));
    EXPECT_FALSE(std::signbit(reduced(ReduceOp::max, 0.0f, -0.0f)));
    EXPECT_FALSE(std::signbit(reduced(ReduceOp::max, -0.0f, 0.0f)));
    EXPECT_TRUE(std::signbit(reduced(ReduceOp::max, -0.0f, -0.0f)));
  });
}

TEST(Reduce, known_results) {
  on_every_simd([] {
    EXPECT_EQ(reduced(ReduceOp::sum, 1.5f, 2.25f), 3.75f);
    EXPECT_EQ(reduced(ReduceOp::avg, 1.5f, 2.25f), 3.75f);
    EXPECT_EQ(reduced(ReduceOp::prod, 1.5f, -2.0f), -3.0f);
    EXPECT_EQ(reduced(ReduceOp::min, 1.5f, -2.0f), -2.0f);
    EXPECT_EQ(reduced(ReduceOp::max, 1.5f, -HUGE_VALF), 1.5f);
  });
}

// The residual after the call, as bits.
std::vector<std::uint32_t> left(const std::vector<float>& value, const std::vector<float>& sent, float factor,
                                const std::vector<float>& before, std::size_t shift = 0) {
  const auto from = Guarded<float>::input(value, 2 * shift), taken = Guarded<float>::input(sent, 3 * shift);
  auto residual = Guarded<float>::output(before, shift);
  keep_residual(from.data(), taken.data(), factor, residual.data(), before.size());
  return bits_of(residual);
}

TEST(Residual, every_target_equals_the_reference_for_every_kind_of_value_tail_and_alignment) {
  const auto families = families_with_nonfinite();
  for (std::size_t n = 0; n <= 90; n += n < 40 ? 1 : 7) {
    for (std::size_t i = 0; i < families.size(); ++i) {
      const auto value = families[i].values(n, 1);
      const auto sent = families[(i + n) % families.size()].values(n, 2);
      const auto residual = families[0].values(n, 3);
      for (const float factor : {1.0f, 3.0f}) {
        const auto expected = by_reference([&] { return left(value, sent, factor, residual); });
        on_every_simd([&] { ASSERT_EQ(left(value, sent, factor, residual, n % 16), expected); });
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Residual, differences_are_kept_unless_they_are_not_finite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> value = {5, 5, kInfinity, 5, 3e38f, 1, 0, -1};
  const std::vector<float> sent = {3, 5, kInfinity, std::nanf(""), -3e38f, -kInfinity, 0, 1};
  on_every_simd([&] {
    EXPECT_EQ(left(value, sent, 2, std::vector<float>(8, 7.0f)), bits_of({4, 0, 7, 7, 7, 7, 0, -4}));
  });
}

}  // namespace
}  // namespace qccl::kernels
