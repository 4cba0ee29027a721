// Shared by reference and vector code of lossless.h: forms, symbols, and the choice of a block's.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/lossless/lossless.h"

namespace qccl::kernels::lossless {

inline constexpr std::size_t kBlock = kLosslessBlock;
inline constexpr std::size_t kLevels = 3;

enum class Form : std::uint8_t {
  constant = 0,
  words = 1,
  upper_halves = 2,
  float16 = 3,
  coded_24 = 4,
  coded_8 = 5,
  coded_11 = 6,
};
inline constexpr std::uint8_t kZeroIsSymbol = 0x80;

// The exponents with the codes 0, 1, 2 on a level.
using Symbols = std::array<std::uint8_t, 3>;

struct Window {
  std::uint8_t base = 127;
  bool zero_is_symbol = false;

  constexpr Symbols symbols(std::size_t level) const {
    constexpr int kWithoutZero[kLevels][3] = {{0, 1, 2}, {-2, -1, 3}, {-5, -4, -3}};
    constexpr int kWithZero[kLevels][3] = {{0, 1, 2}, {-1, 0, 3}, {-4, -3, -2}};
    Symbols symbols{};
    for (std::size_t i = 0; i < 3; ++i) {
      symbols[i] = static_cast<std::uint8_t>(base + (zero_is_symbol ? kWithZero : kWithoutZero)[level][i]);
    }
    if (zero_is_symbol && level == 0) symbols[0] = 0;
    return symbols;
  }
};

inline constexpr int kLeastBase = 5, kMostBase = 252;

// From the sum of the exponents of n words, and the number of nonzero ones. The base is a quarter below the mean of the
// nonzero ones, rounded down: this cost least, within a hundredth of the best base for each block, over normal,
// Laplace, Student-t, uniform and log-normal data of any scale.
constexpr Window choose_window(std::uint32_t sum, std::uint32_t nonzero, std::size_t n) {
  const int base = nonzero == 0 ? kLeastBase : static_cast<int>((4 * sum - nonzero) / (4 * nonzero));
  return {static_cast<std::uint8_t>(std::clamp(base, kLeastBase, kMostBase)), (n - nonzero) * 32 >= n};
}

// `any_bits`: the bits of all words, or-ed.
constexpr Form coded_form(std::uint32_t any_bits) {
  return (any_bits & 0xFFFFu) == 0 ? Form::coded_8 : (any_bits & 0x1FFFu) == 0 ? Form::coded_11 : Form::coded_24;
}

constexpr std::size_t plane_bytes(std::size_t n) { return (n + 7) / 8; }

// Number of bytes of the bits that are not exponents.
constexpr std::size_t rest_bytes(Form coded, std::size_t n) {
  return coded == Form::coded_24 ? 3 * n : coded == Form::coded_8 ? n : n + 3 * plane_bytes(n);
}

// Number of bytes of a whole block, from the number of elements of each level and of those left after the last.
constexpr std::size_t coded_bytes(Form coded, const std::array<std::size_t, kLevels + 1>& counts) {
  std::size_t bytes = 2 + counts[kLevels] + rest_bytes(coded, counts[0]);
  for (std::size_t level = 0; level < kLevels; ++level) bytes += 2 * plane_bytes(counts[level]);
  return bytes;
}

constexpr std::size_t plain_bytes(Form plain, std::size_t n) { return 1 + (plain == Form::words ? 4 : 2) * n; }

// The form of a block whose words differ. Calls `is_float16()`, whether all words are, only if it matters.
template <class IsFloat16>
constexpr Form choose_form(Form coded, std::size_t bytes, std::size_t n, IsFloat16 is_float16) {
  const std::size_t halves = plain_bytes(Form::upper_halves, n);
  if (coded == Form::coded_8) return bytes < halves ? coded : Form::upper_halves;
  if (coded == Form::coded_11 && bytes >= halves && is_float16()) return Form::float16;
  return bytes < plain_bytes(Form::words, n) ? coded : Form::words;
}

// A word turned left by one bit, and back.
constexpr std::uint32_t turn(std::uint32_t word) { return word << 1 | word >> 31; }
constexpr std::uint32_t turn_back(std::uint32_t word) { return word >> 1 | word << 31; }

}  // namespace qccl::kernels::lossless
