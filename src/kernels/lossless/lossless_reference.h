// The specification of lossless coding, one element at a time; the layout is in lossless.h. The vector code equals it
// byte for byte, and shares the forms, the symbols and the choice of a block's.
//
// A block whose words are all the same has form 0. Any other block is coded, with the fewest other bits that its words
// allow (form 5, else 6, else 4), or plain if that takes no more bytes (2 instead of 5, 3 instead of 6 if all are
// float16, else 1): it never takes more than one byte above the words, or above 16 bits a word if they were 16-bit
// values.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "base/half.h"
#include "kernels/lossless/lossless.h"
#include "kernels/reduce/reduce.h"
#include "kernels/reduce/reduce_reference.h"

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

namespace qccl::kernels::reference {

using lossless::Form;
using lossless::kBlock;
using lossless::kLevels;

// Writes or reads bytes in order. Reading past the end gives 0 and is remembered.
class LosslessWriter {
 public:
  explicit LosslessWriter(std::byte* to) : to_(to) {}
  void put(std::uint32_t value, std::size_t bytes) {
    std::memcpy(to_, &value, bytes);
    to_ += bytes;
  }
  template <class Bit>
  void put_plane(std::size_t n, Bit bit) {
    for (std::size_t begin = 0; begin < n; begin += 8) {
      std::uint32_t byte = 0;
      for (std::size_t i = begin; i < std::min(n, begin + 8); ++i) byte |= (bit(i) & 1u) << (i - begin);
      put(byte, 1);
    }
  }
  std::byte* end() const { return to_; }

 private:
  std::byte* to_;
};

class LosslessReader {
 public:
  LosslessReader(const std::byte* from, std::size_t bytes) : from_(from), left_(bytes) {}
  std::uint32_t get(std::size_t bytes) {
    std::uint32_t value = 0;
    failed_ = failed_ || bytes > left_;
    if (failed_) return 0;
    std::memcpy(&value, from_, bytes);
    from_ += bytes;
    left_ -= bytes;
    return value;
  }
  // Calls use(i, bit) for n bits; unused bits must be 0.
  template <class Use>
  void get_plane(std::size_t n, Use use) {
    for (std::size_t begin = 0; begin < n; begin += 8) {
      const std::uint32_t byte = get(1);
      const std::size_t end = std::min(n, begin + 8);
      for (std::size_t i = begin; i < end; ++i) use(i, byte >> (i - begin) & 1u);
      failed_ = failed_ || byte >> (end - begin) != 0;
    }
  }
  void fail() { failed_ = true; }
  bool failed() const { return failed_; }
  std::size_t left() const { return left_; }

 private:
  const std::byte* from_;
  std::size_t left_;
  bool failed_ = false;
};

inline std::uint32_t exponent_of(std::uint32_t word) { return word >> 23 & 0xFFu; }

inline std::uint32_t code_of(const lossless::Symbols& symbols, std::uint32_t exponent) {
  const auto found = std::find(symbols.begin(), symbols.end(), exponent);
  return static_cast<std::uint32_t>(found - symbols.begin());
}

// A block's exponents level by level: each level's input, and finally the exponents without a symbol.
struct LosslessLevels {
  lossless::Window window;
  std::uint8_t exponents[kLevels + 1][kBlock];
  std::array<std::size_t, kLevels + 1> counts{};

  LosslessLevels(const std::uint32_t* words, std::size_t n) {
    std::uint32_t sum = 0, nonzero = 0;
    for (std::size_t i = 0; i < n; ++i) {
      exponents[0][i] = static_cast<std::uint8_t>(exponent_of(words[i]));
      sum += exponents[0][i];
      nonzero += exponents[0][i] != 0 ? 1 : 0;
    }
    window = lossless::choose_window(sum, nonzero, n);
    counts[0] = n;
    for (std::size_t level = 0; level < kLevels; ++level) {
      const lossless::Symbols symbols = window.symbols(level);
      for (std::size_t i = 0; i < counts[level]; ++i) {
        const std::uint8_t exponent = exponents[level][i];
        if (code_of(symbols, exponent) == 3) exponents[level + 1][counts[level + 1]++] = exponent;
      }
    }
  }
};

inline void put_coded(const LosslessLevels& levels, Form form, const std::uint32_t* words, LosslessWriter& writer) {
  const std::size_t n = levels.counts[0];
  writer.put(static_cast<std::uint32_t>(form) | (levels.window.zero_is_symbol ? lossless::kZeroIsSymbol : 0), 1);
  writer.put(levels.window.base, 1);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t turned = lossless::turn(words[i]);
    if (form == Form::coded_24) {
      writer.put(turned & 0xFFFFFFu, 3);
    } else {
      writer.put((turned >> 16 & 0xFEu) | (turned & 1u), 1);
    }
  }
  for (int bit = 13; form == Form::coded_11 && bit < 16; ++bit) {
    writer.put_plane(n, [&](std::size_t i) { return words[i] >> bit; });
  }
  for (std::size_t level = 0; level < kLevels; ++level) {
    const lossless::Symbols symbols = levels.window.symbols(level);
    const auto code = [&](std::size_t i) { return code_of(symbols, levels.exponents[level][i]); };
    writer.put_plane(levels.counts[level], code);
    writer.put_plane(levels.counts[level], [&](std::size_t i) { return code(i) >> 1; });
  }
  for (std::size_t i = 0; i < levels.counts[kLevels]; ++i) writer.put(levels.exponents[kLevels][i], 1);
}

// Returns the end of what it wrote.
inline std::byte* lossless_encode_block(const std::uint32_t* words, std::size_t n, std::byte* target) {
  LosslessWriter writer(target);
  if (std::all_of(words, words + n, [&](std::uint32_t word) { return word == words[0]; })) {
    writer.put(static_cast<std::uint32_t>(Form::constant), 1);
    writer.put(words[0], 4);
    return writer.end();
  }
  std::uint32_t any_bits = 0;
  for (std::size_t i = 0; i < n; ++i) any_bits |= words[i];
  const LosslessLevels levels(words, n);
  const Form coded = lossless::coded_form(any_bits);
  const auto is_float16 = [&] {
    return std::all_of(words, words + n, [](std::uint32_t word) {
      return widen_exactly(DataType::float16, narrow_exactly(DataType::float16, word)) == word;
    });
  };
  const Form form = lossless::choose_form(coded, lossless::coded_bytes(coded, levels.counts), n, is_float16);
  if (form == coded) {
    put_coded(levels, form, words, writer);
    return writer.end();
  }
  writer.put(static_cast<std::uint32_t>(form), 1);
  for (std::size_t i = 0; i < n; ++i) {
    if (form == Form::words) writer.put(words[i], 4);
    if (form == Form::upper_halves) writer.put(words[i] >> 16, 2);
    if (form == Form::float16) writer.put(narrow_exactly(DataType::float16, words[i]), 2);
  }
  return writer.end();
}

// Appends the words' exponents level by level: the codes, then the exponents without a symbol.
inline void get_exponents(LosslessReader& reader, lossless::Window window, std::uint32_t* exponents, std::size_t n) {
  std::uint32_t codes[kLevels][kBlock];
  std::size_t counts[kLevels + 1] = {n};
  for (std::size_t level = 0; level < kLevels; ++level) {
    reader.get_plane(counts[level], [&](std::size_t i, std::uint32_t bit) { codes[level][i] = bit; });
    reader.get_plane(counts[level], [&](std::size_t i, std::uint32_t bit) { codes[level][i] |= bit << 1; });
    counts[level + 1] = static_cast<std::size_t>(std::count(codes[level], codes[level] + counts[level], 3u));
  }
  std::uint32_t rest[kBlock];
  for (std::size_t i = 0; i < counts[kLevels]; ++i) rest[i] = reader.get(1);
  std::size_t next[kLevels] = {};  // next code of each level; below, next element of `rest`
  std::size_t next_rest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t level = 0;
    while (level < kLevels && codes[level][next[level]++] == 3) ++level;
    exponents[i] = level == kLevels ? rest[next_rest++] : window.symbols(level)[codes[level][next[level] - 1]];
  }
}

inline void get_coded(LosslessReader& reader, Form form, bool zero_is_symbol, std::uint32_t* words, std::size_t n) {
  const std::uint32_t base = reader.get(1);
  if (base < lossless::kLeastBase || base > lossless::kMostBase) reader.fail();
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t rest = reader.get(form == Form::coded_24 ? 3 : 1);
    words[i] = lossless::turn_back(form == Form::coded_24 ? rest : (rest & 0xFEu) << 16 | (rest & 1u));
  }
  for (int at = 13; form == Form::coded_11 && at < 16; ++at) {
    reader.get_plane(n, [&](std::size_t i, std::uint32_t bit) { words[i] |= bit << at; });
  }
  std::uint32_t exponents[kBlock];
  get_exponents(reader, {static_cast<std::uint8_t>(base), zero_is_symbol}, exponents, n);
  for (std::size_t i = 0; i < n; ++i) words[i] |= exponents[i] << 23;
}

inline void lossless_decode_block(LosslessReader& reader, std::uint32_t* words, std::size_t n) {
  const std::uint32_t first = reader.get(1);
  const auto form = static_cast<Form>(first & ~lossless::kZeroIsSymbol);
  const bool zero_is_symbol = (first & lossless::kZeroIsSymbol) != 0;
  const bool is_coded = form >= Form::coded_24 && form <= Form::coded_11;
  if (is_coded) return get_coded(reader, form, zero_is_symbol, words, n);
  if (zero_is_symbol || form > Form::coded_11) return reader.fail();
  if (form == Form::constant) std::fill_n(words, n, reader.get(4));
  for (std::size_t i = 0; i < n; ++i) {
    if (form == Form::words) words[i] = reader.get(4);
    if (form == Form::upper_halves) words[i] = reader.get(2) << 16;
    if (form == Form::float16) words[i] = widen_exactly(DataType::float16, static_cast<std::uint16_t>(reader.get(2)));
  }
}

}  // namespace qccl::kernels::reference
