// The specification of h4: a randomized Hadamard transform makes a block's coefficients look like samples of a normal
// distribution, whatever the block. Each coefficient then takes the nearest of 4, 8 or 16 levels that are best for that
// distribution (Lloyd 1982, Max 1960; DRIVE, arXiv 2105.08339; EDEN, arXiv 2108.08842).
//
// For a block of 256 values v. Float operations are float32, each rounded by itself to nearest even; the rest is exact
// in integers:
//
//   sum  = the sum of |v| in 16 lanes, element e in lane e % 16 (h4_sum() has the order)
//   q    = rint(v * (32600 / sum)): the sum of |q| fits 16 bits, and so does every coefficient
//   z    = T(s q), with random signs s and a transform T of which T T = 256
//   t    = floor(z * m / 2^16), m = rint(50 * 2^16 / sqrt(N)), N = sum of q^2: z in fiftieths of its rms
//   code = the level of t, by thresholds that are whole fiftieths; levels are whole numbers, symmetric around 0
//
// Decoding is exact except for the last product:
//
//   y = scale * s T(levels of the codes)
//
// T is H64 (x) (J4 - 2 I4): each four neighbours x become their sum minus 2 x, then a Walsh-Hadamard transform over the
// 64 quads follows. T is a Hadamard matrix and symmetric; H4 instead of J4 - 2 I4 would cost the decoder one stage
// more.
//
// With A = <z, levels> and B = the sum of levels^2, the best scale leaves the part e = 1 - A^2 / (256 N B) of the
// block's energy. Let D be the optimum for normal samples. One transform is kept if e <= 1.1 D, or if e <= 1.5 D and
// the block is not like a lattice (h4_is_lattice()). Otherwise the block is transformed twice, v becoming z with other
// signs: the coefficients of any block are then within O(256^-1/2) of normal (arXiv 2605.06014). For the unbiased scale
// a sparse block (h4_is_sparse()) is always transformed twice.
//
// For the least error the scale is sum / 32600 times A / (256 B); unbiased (EDEN) it is sum / 32600 times N / A: then
// <v, y> = |v|^2. If A^2 < 128 N B, the first is always used, so that at most the block's energy is lost. After a
// second transform that is the scale of the first z, and the block's scale is it times sum / 32600 / 256 again.
//
// Error, in the Euclidean norm over a block, including the rounding of v to whole numbers and of the scale:
// |v - y| <= |v| (1 + 2^-6) + 2^-118 always. For a block that was transformed once |v - y| <= |v| (sqrt(L) + 2^-7),
// with L = 1.5 D, unbiased L / (1 - L), and 2^-118 more if the scale is below 2^-126. The mean over signs is about
// D |v|^2, unbiased D / (1 - D); D = .1175, .03454, .009497 for 2, 3, 4 bits. The mean of unbiased y over signs is v,
// except for about 1 % of that error's energy.
//
// Special blocks. All zeros: scale 0, codes 0; decodes to +0. An element that is not finite: scale NaN, codes 0;
// decodes to NaN. A sum below 2^-60 or above 2^120: everything is computed from v * 2^80 or v * 2^-20. A scale of 2^104
// or more: y could overflow and is clamped to +-FLT_MAX.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/half.h"
#include "kernels/h4/h4.h"
#include "kernels/lanes/random.h"

namespace qccl::kernels::reference {

// ---- Codebooks: thresholds in fiftieths of the rms, and levels of the magnitudes between them. They are the best
// whole numbers for the normal distribution: their mean error is within 0.12 % of the optimum D.

struct H4Codebook {
  int magnitudes = 0;
  std::array<int, 7> thresholds{};
  std::array<int, 8> levels{};
  double optimum = 0;  // D
};

constexpr H4Codebook h4_codebook(int bits) {
  if (bits == 2) return {2, {49}, {12, 40}, 0.11748};
  if (bits == 3) return {4, {25, 52, 87}, {13, 40, 71, 114}, 0.034548};
  return {8, {13, 26, 40, 55, 72, 92, 120}, {5, 15, 25, 36, 48, 62, 79, 104}, 0.009501};
}

inline constexpr float kH4CellsPerRms = 50.0f;

// The magnitude of a cell u, 0..127, is (u + table[u / 8]) / 8: no eight cells contain two thresholds. Modulo 256.
constexpr std::array<std::uint8_t, 16> h4_cell_offsets(int bits) {
  const H4Codebook book = h4_codebook(bits);
  std::array<std::uint8_t, 16> offsets{};
  int magnitude = 0;
  for (int cell = 0; cell < 128; cell += 8) {
    const bool rises = magnitude + 1 < book.magnitudes && book.thresholds[magnitude] < cell + 8;
    const int offset = rises ? 8 * (magnitude + 1) - book.thresholds[magnitude] : 8 * magnitude - cell;
    offsets[cell / 8] = static_cast<std::uint8_t>(offset);
    magnitude += rises ? 1 : 0;
  }
  return offsets;
}

// Code: the magnitude, and above it a bit that is 1 for negative. Returns the level of each, repeated up to 16.
constexpr std::array<std::int8_t, 16> h4_levels(int bits) {
  const H4Codebook book = h4_codebook(bits);
  std::array<std::int8_t, 16> levels{};
  for (int code = 0; code < 16; ++code) {
    const int level = book.levels[code % book.magnitudes];
    levels[code] = static_cast<std::int8_t>(code / book.magnitudes % 2 == 0 ? level : -level);
  }
  return levels;
}

// ---- Signs. The seed gives a sequence of rows of 16: lane l of row r is bit r % 32 of word(16 (r / 32) + l). A block
// takes 16 rows that begin at an even row, which a hash of its number chooses; its second transform takes those 32 rows
// later or earlier.

inline constexpr int kH4Windows = 32;
inline constexpr int kH4SignRows = 2 * kH4Windows + 14;  // 78
inline constexpr std::uint32_t kH4Golden = 0x9E3779B9u;

constexpr std::uint32_t h4_hash(std::uint32_t x) { return random_word({}, x); }  // "lowbias32"
constexpr std::uint32_t h4_sign_word(std::uint32_t seed, std::uint32_t index) {
  return h4_hash(seed + (index + 1) * kH4Golden);
}
// First row of a block's signs for its first and second transform.
constexpr int h4_first_row(std::uint32_t seed, std::uint32_t block) {
  return 2 * static_cast<int>(h4_hash(~seed + block * kH4Golden) >> 27);
}
constexpr int h4_second_row(int first_row) { return first_row ^ 32; }

// True: negative.
constexpr bool h4_is_negative(std::uint32_t seed, int row, int lane) {
  const auto index = static_cast<std::uint32_t>(16 * (row / 32) + lane);
  return (h4_sign_word(seed, index) >> (row % 32) & 1u) != 0;
}

// ---- The location of element e's code, in bytes. In a byte the lowest bits are field 0:
//   4 bits: fields of 4 bits in 128 bytes; 2 bits: fields of 2 in 64 bytes
//   3 bits: the magnitudes like 2 bits, then the sign bits, fields of 1 in 32 bytes
// Whole vectors of bytes then hold one field of each code.

struct H4Location {
  int byte = 0;
  int field = 0;
};

constexpr H4Location h4_location(int element, int field_bits) {
  const auto bit = [=](int from, int to) { return (element >> from & 1) << to; };
  const int byte = bit(0, 0) | bit(1, 1) | bit(5, 2) | bit(3, 3) | bit(6, 4) | bit(7, 5) | bit(2, 6);  // 7 bits
  const int field = bit(4, 0);
  if (field_bits == 4) return {byte, field};
  if (field_bits == 2) return {byte % 64, field + 2 * (byte / 64)};
  return {byte % 32, field + 2 * (byte / 64) + 4 * (byte / 32 % 2)};
}

inline void h4_put(std::byte* codes, H4Location location, int field_bits, int value) {
  codes[location.byte] |= static_cast<std::byte>(value << (location.field * field_bits));
}
inline int h4_get(const std::byte* codes, H4Location location, int field_bits) {
  return std::to_integer<int>(codes[location.byte]) >> (location.field * field_bits) & ((1 << field_bits) - 1);
}

inline void h4_put_code(int bits, std::byte* codes, int element, int code) {
  h4_put(codes, h4_location(element, bits == 4 ? 4 : 2), bits == 4 ? 4 : 2, bits == 3 ? code % 4 : code);
  if (bits == 3) h4_put(codes + 64, h4_location(element, 1), 1, code / 4);
}
inline int h4_get_code(int bits, const std::byte* codes, int element) {
  const int low = h4_get(codes, h4_location(element, bits == 4 ? 4 : 2), bits == 4 ? 4 : 2);
  return bits == 3 ? low + 4 * h4_get(codes + 64, h4_location(element, 1), 1) : low;
}

// ---- Sums and the transform.

// The sum of term(x) over the block. Lane l adds rows k, k + 4, k + 8, k + 12 in order for k = 0..3, then those four as
// (0 + 1) + (2 + 3); then lanes l and l + 8, l + 4, l + 2, l + 1 are added.
template <class Term>
float h4_sum(const float* x, Term term) {
  std::array<float, 16> lanes{};
  for (std::size_t lane = 0; lane < 16; ++lane) {
    std::array<float, 4> parts{};
    for (std::size_t k = 0; k < 4; ++k) {
      const float* at = x + 16 * k + lane;
      parts[k] = ((term(at[0]) + term(at[64])) + term(at[128])) + term(at[192]);
    }
    lanes[lane] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// T is any type that holds the sums.
template <class T>
void h4_transform(T* x) {
  for (std::size_t i = 0; i < kH4Block; i += 4) {
    const T sum = (x[i] + x[i + 1]) + (x[i + 2] + x[i + 3]);
    for (std::size_t j = i; j < i + 4; ++j) x[j] = sum - 2 * x[j];
  }
  for (std::size_t half = 4; half < kH4Block; half *= 2) {
    for (std::size_t begin = 0; begin < kH4Block; begin += 2 * half) {
      for (std::size_t i = begin; i < begin + half; ++i) {
        const T a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
}

// ---- Scales.

struct H4Moments {
  std::int32_t squares = 0;  // N, of q
  std::int32_t product = 0;  // A
  std::int32_t levels = 0;   // B
};

// Whether e is at most `times` D.
inline bool h4_error_within(int bits, const H4Moments& m, double times) {
  const double kept = 256.0 * (1.0 - times * h4_codebook(bits).optimum);
  const double product = m.product;
  return product * product >= kept * (static_cast<double>(m.squares) * m.levels);
}

// Uses the sum of (v * 32600 / sum)^4; the sum of |q| is 32600. By Hoelder's inequality |q|_1^2 |q|_4^4 is at least
// q|_2^6, and equal if all elements other than 0 have one magnitude (normal samples: 1.9 times; uniform ones: 1.35).
// Their signed sums then lie on a lattice as coarse as the levels. squares^2 / fourths is the number of such elements.
inline bool h4_is_lattice(float squares, float fourths) {
  const bool one_magnitude = 32600.0f * 32600.0f * fourths < 1.3f * squares * squares * squares;
  const bool few_elements = squares * squares < 24.0f * fourths;
  return one_magnitude || few_elements;
}

// Whether few elements have most of the energy: |q|_1^2 / 256 (with |q|_1 = 32600) is below .3, .2, .1 of N for 2, 3, 4
// bits; for normal samples it is .64. After one transform the coefficients of such a block are a few values with little
// spread: the other elements move hardly any of them to another level, and would be missing from every decoded block.
constexpr bool h4_is_sparse(int bits, std::int32_t squares) {
  constexpr int kPart = 32600 * 32600 / 256;
  return squares > kPart * 10 / (5 - bits);
}

// The gain of the block's last transform: the factor after sum / 32600.
inline float h4_gain(bool unbiased, const H4Moments& m) {
  const auto product = static_cast<float>(m.product);
  const double cosine = static_cast<double>(m.product) * m.product;
  if (unbiased && cosine >= 128.0 * (static_cast<double>(m.squares) * m.levels)) {
    return static_cast<float>(m.squares) / product;
  }
  return product / (256.0f * static_cast<float>(m.levels));
}

inline float h4_cells_factor(std::int32_t squares) {
  return kH4CellsPerRms * 65536.0f / std::sqrt(static_cast<float>(squares));
}

inline constexpr float kH4LargestSum = 32600.0f;
inline constexpr float kH4SmallSum = 0x1p-60f;
inline constexpr float kH4LargeSum = 0x1p120f;
inline constexpr float kH4RaiseSmall = 0x1p80f;
inline constexpr float kH4LowerLarge = 0x1p-20f;

// The kinds of blocks on the wire.
enum class H4BlockKind : std::uint8_t { zero, invalid, once, twice };

struct H4Scale {
  float scale = 0;
  H4BlockKind kind = H4BlockKind::zero;
  bool wide = false;  // y may overflow
};

// A negative scale means: transformed twice.
constexpr std::uint16_t h4_scale_bits(float scale) { return to_bfloat16(scale).bits; }
inline H4Scale h4_scale(std::uint16_t bits) {
  const float scale = to_float(bfloat16{static_cast<std::uint16_t>(bits & 0x7FFFu)});
  if (scale == 0) return {0, H4BlockKind::zero, false};
  if (!std::isfinite(scale)) return {canonical_nan(), H4BlockKind::invalid, false};
  return {scale, (bits & 0x8000u) != 0 ? H4BlockKind::twice : H4BlockKind::once, scale >= 0x1p104f};
}

// The last product: scale times a sum of levels.
inline float h4_scaled(const H4Scale& scale, float sum) {
  if (!scale.wide) return sum * scale.scale;
  constexpr float kLimit = std::numeric_limits<float>::max() * 0x1p-16f;
  return std::clamp(sum * (scale.scale * 0x1p-16f), -kLimit, kLimit) * 0x1p16f;
}

}  // namespace qccl::kernels::reference
