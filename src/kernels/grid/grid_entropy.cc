#include "kernels/grid/grid_entropy.h"

#include <algorithm>
#include <cmath>

namespace qccl::kernels::grid {
namespace {

constexpr int kPrecision = 10;  // bits of the sum of a table's frequencies
constexpr std::uint32_t kTotal = 1u << kPrecision;
constexpr std::size_t kTables = 14;
constexpr std::uint32_t kCostUnit = 16;  // costs are in sixteenths of a bit

struct Table {
  int low_bits;
  std::uint32_t symbols;
  std::array<std::uint16_t, kMostSymbols> frequencies;
};

// Of rounded values of a distribution half way between the logistic and Laplace's, by mean magnitudes from 0.02 to 20
// steps; between kLeastMagnitudes. On Gauss, Laplace, t3 and gradients they take 1 to 2 % more than each set's own.
constexpr Table kTable[kTables] = {
    {0, 4, {1003, 10, 10, 1}},
    {0, 6, {981, 20, 20, 1, 1, 1}},
    {0, 6, {939, 41, 41, 1, 1, 1}},
    {0, 8, {861, 79, 79, 1, 1, 1, 1, 1}},
    {0, 10, {747, 130, 130, 6, 6, 1, 1, 1, 1, 1}},
    {0, 12, {611, 181, 181, 21, 21, 2, 2, 1, 1, 1, 1, 1}},
    {0, 16, {467, 212, 212, 50, 50, 11, 11, 2, 2, 1, 1, 1, 1, 1, 1, 1}},
    {0, 22, {339, 209, 209, 84, 84, 30, 30, 10, 10, 4, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {0, 32, {233, 177, 177, 104, 104, 55, 55, 27, 27, 13, 13, 7, 7, 3, 3, 2,
             2,   1,   1,   1,   1,   1,  1,  1,  1,  1,  1,  1, 1, 1, 1, 1}},
    {0, 32, {163, 138, 138, 100, 100, 69, 69, 45, 45, 29, 29, 18, 18, 11, 11, 7,
             7,   4,   4,   3,   3,   2,  2,  1,  1,  1,  1,  1,  1,  1,  1,  1}},
    {0, 32, {116, 101, 101, 83, 83, 67, 67, 52, 52, 40, 40, 30, 30, 22, 22, 16,
             16,  12,  12,  9,  9,  6,  6,  4,  4,  3,  3,  2,  2,  2,  2,  10}},
    {1, 32, {145, 133, 118, 103, 89, 76, 64, 53, 44, 37, 30, 24, 20, 16, 13, 11,
             9,   7,   6,   5,   4,  3,  2,  2,  2,  1,  1,  1,  1,  1,  1,  2}},
    {2, 32, {161, 144, 125, 107, 91, 76, 63, 51, 41, 33, 27, 21, 17, 13, 11, 8,
             7,   5,   4,   3,   3,  2,  2,  1,  1,  1,  1,  1,  1,  1,  1,  1}},
    {3, 32, {161, 144, 125, 107, 91, 76, 63, 51, 41, 33, 27, 21, 17, 13, 11, 8,
             7,   5,   4,   3,   3,  2,  2,  1,  1,  1,  1,  1,  1,  1,  1,  1}},
};

// The least sum of magnitudes of 128 elements for classes 2 to 14: the geometric mean of two tables' means.
constexpr std::uint32_t kLeastMagnitudes[] = {4, 7, 14, 27, 45, 72, 110, 166, 251, 376, 570, 949, 1810};

const Table& table_of(std::uint32_t entropy_class) { return kTable[entropy_class - 1]; }

// ---- What follows from the tables.

struct EncoderSymbol {
  std::uint64_t reciprocal;  // ceil(2^42 / f): x * reciprocal >> 42 is x / f for x < 2^22 f, f < 2^10
  std::uint32_t limit;       // 2^22 f
  std::uint16_t start;
  std::uint16_t rest;  // 2^10 - f
};
constexpr int kReciprocalBits = 42;

// A symbol in the lowest 8 bits, its frequency in 12, and the distance to its first slot.
using Slots = std::array<std::uint32_t, kTotal>;

struct Tables {
  std::array<std::array<EncoderSymbol, kMostSymbols>, kTables> symbols{};
  std::array<Slots, kTables> slots{};
  std::array<std::array<std::uint16_t, 256>, kTables> costs{};  // of each z, with all that is sent for it
};

// An upper limit of log2(1024 / f) * 16, by squaring; 1 for its rounding and 1 for that of a state, which is at
// least 2^6 f.
constexpr std::uint32_t cost_of(std::uint32_t f) {
  double value = static_cast<double>(kTotal) / f;
  std::uint32_t whole = 0, sixteenths = 0;
  for (; value >= 2; value /= 2) ++whole;
  for (int bit = 0; bit < 4; ++bit) {
    value *= value;
    sixteenths = 2 * sixteenths + (value >= 2 ? 1 : 0);
    if (value >= 2) value /= 2;
  }
  return whole * kCostUnit + sixteenths + 2;
}

constexpr Tables make_tables() {
  Tables made;
  for (std::size_t t = 0; t < kTables; ++t) {
    std::uint32_t start = 0;
    for (std::uint32_t s = 0; s < kTable[t].symbols; ++s) {
      const std::uint32_t f = kTable[t].frequencies[s];
      made.symbols[t][s] = {((std::uint64_t{1} << kReciprocalBits) + f - 1) / f, f << 22,
                            static_cast<std::uint16_t>(start), static_cast<std::uint16_t>(kTotal - f)};
      for (std::uint32_t i = 0; i < f; ++i) made.slots[t][start + i] = s | f << 8 | i << 20;
      start += f;
    }
    const std::uint32_t last = kTable[t].symbols - 1;
    for (std::uint32_t z = 0; z < 256; ++z) {
      const std::uint32_t symbol = std::min(z >> kTable[t].low_bits, last);
      const std::uint32_t sent = static_cast<std::uint32_t>(kTable[t].low_bits) + (symbol == last ? 8 : 0);
      made.costs[t][z] = static_cast<std::uint16_t>(cost_of(kTable[t].frequencies[symbol]) + sent * kCostUnit);
    }
  }
  return made;
}

constexpr bool sums_are_right() {
  for (const Table& table : kTable) {
    std::uint32_t sum = 0;
    for (std::uint32_t s = 0; s < kMostSymbols; ++s) {
      sum += table.frequencies[s];
      if ((table.frequencies[s] == 0) != (s >= table.symbols)) return false;
    }
    if (sum != kTotal) return false;
  }
  return true;
}
static_assert(sums_are_right());

constinit const Tables kTablesMade = make_tables();

}  // namespace

int low_bits(std::uint32_t entropy_class) { return table_of(entropy_class).low_bits; }
std::uint32_t escape(std::uint32_t entropy_class) { return table_of(entropy_class).symbols - 1; }

std::uint32_t choose_class(const std::uint8_t* z, std::uint32_t magnitudes, std::size_t n, std::size_t block_bits) {
  if (magnitudes == 0) return kZeros;
  const auto mean = static_cast<std::uint32_t>(magnitudes * kGroup / n);
  std::uint32_t chosen = 1;
  for (const std::uint32_t least : kLeastMagnitudes) chosen += mean >= least ? 1 : 0;
  const auto& costs = kTablesMade.costs[chosen - 1];
  std::uint32_t even = 0, odd = 0;
  const std::size_t coded = (n + kCoders - 1) / kCoders * kCoders;
  for (std::size_t i = 0; i < coded; i += kCoders) {
#pragma GCC unroll 4
    for (std::size_t lane = 0; lane < kCoders; lane += 2) {
      even += costs[z[i + lane]];
      odd += costs[z[i + lane + 1]];
    }
  }
  return even + odd < block_bits * kCostUnit ? chosen : kBlocks;
}

std::uint16_t* encode_symbols(std::uint32_t entropy_class, const std::uint8_t* z, std::size_t n, States& states,
                              std::uint16_t* front) {
  const Table& table = table_of(entropy_class);
  const auto& symbols = kTablesMade.symbols[entropy_class - 1];
  const std::uint32_t last = table.symbols - 1;
  const int low = table.low_bits;
  States x = states;
  for (std::size_t i = n; i > 0; i -= kCoders) {
#pragma GCC unroll 8
    for (std::size_t lane = kCoders; lane-- > 0;) {
      const EncoderSymbol& symbol = symbols[std::min<std::uint32_t>(z[i - kCoders + lane] >> low, last)];
      // No branch: it could not be predicted.
      const std::uint32_t sent = x[lane] >= symbol.limit ? 1 : 0;
      front[-1] = static_cast<std::uint16_t>(x[lane]);
      front -= sent;
      const std::uint32_t state = x[lane] >> 16 * sent;
      const auto quotient = static_cast<std::uint32_t>(state * symbol.reciprocal >> kReciprocalBits);
      x[lane] = state + symbol.start + quotient * symbol.rest;
    }
  }
  states = x;
  return front;
}

const std::uint16_t* decode_symbols(std::uint32_t entropy_class, const std::uint16_t* words, States& states,
                                    std::size_t n, std::uint8_t* symbols) {
  const Slots& slots = kTablesMade.slots[entropy_class - 1];
  States x = states;
  for (std::size_t i = 0; i < n; i += kCoders) {
#pragma GCC unroll 8
    for (std::size_t lane = 0; lane < kCoders; ++lane) {
      const std::uint32_t slot = slots[x[lane] & (kTotal - 1)];
      symbols[i + lane] = static_cast<std::uint8_t>(slot);
      const std::uint32_t state = (slot >> 8 & 0xFFFu) * (x[lane] >> kPrecision) + (slot >> 20);
      const std::uint32_t taken = state < kFirstState ? 1 : 0;
      x[lane] = state << 16 * taken | (*words & (0u - taken));
      words += taken;
    }
  }
  states = x;
  return words;
}

}  // namespace qccl::kernels::grid
