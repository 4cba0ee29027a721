// The specification of topk.h: which elements of a chunk are sent (below), and the bytes of a chunk, code that
// reference and vector code share. The vector code equals it byte for byte.
//
// The selection is exact, so it does not matter how it is found: the bytes depend on no order of additions and no
// estimate.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "base/half.h"
#include "kernels/reduce/reduce_reference.h"
#include "kernels/topk/topk.h"

namespace qccl::kernels::topk {

using Index = std::uint16_t;

inline constexpr std::uint32_t kMagnitudeBits = 0x7FFFFFFFu;
inline constexpr std::uint32_t kNotFinite = 0x7F800000u;  // magnitudes from here on

inline std::uint32_t magnitude_of(const float* x, std::size_t i) {
  std::uint32_t bits;
  std::memcpy(&bits, x + i, sizeof(bits));
  return bits & kMagnitudeBits;
}

// Rounds to nearest even, for |x| below 2^22.
inline float nearest(float x) {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

inline constexpr float kMostCode = 127.0f;

inline float scale_for(float largest) { return std::max(largest / kMostCode, 0x1p-126f); }

inline float value_of(std::int8_t code, float scale) {
  constexpr float kMost = std::numeric_limits<float>::max();
  return std::clamp(static_cast<float>(code) * scale, -kMost, kMost);
}

inline constexpr unsigned kIsLarge = 1;
inline constexpr unsigned kIsNegative = 2;

inline float pair_scale_for(float largest) { return largest == 0 ? 0.0f : std::max(largest / 3.0f, 0x1p-126f); }

inline unsigned pair_code_of(float x, float scale) {
  return (std::fabs(x) >= 2.0f * scale && scale > 0 ? kIsLarge : 0u) | (x < 0 ? kIsNegative : 0u);
}
inline float pair_value_of(unsigned code, float scale) {
  const float size = std::min((code & kIsLarge) != 0 ? 3.0f * scale : scale, std::numeric_limits<float>::max());
  return (code & kIsNegative) != 0 ? -size : size;
}

// ---- Writing. Each function returns the end of its output.

inline float largest_of(const float* values, std::size_t k) {
  float largest = 0;
  for (std::size_t i = 0; i < k; ++i) largest = std::max(largest, std::fabs(values[i]));
  return largest;
}

// int2.
inline std::byte* put_pairs(const float* values, std::size_t k, std::byte* to) {
  const float scale = pair_scale_for(largest_of(values, k));
  std::memcpy(to, &scale, sizeof(scale));
  to += sizeof(scale);
  std::fill_n(to, (k + 3) / 4, std::byte{0});
  for (std::size_t i = 0; i < k; ++i) {
    to[i / 4] |= static_cast<std::byte>(pair_code_of(values[i], scale) << (i % 4 * 2));
  }
  return to + (k + 3) / 4;
}

// int8.
inline std::byte* put_codes(const float* values, std::size_t k, std::byte* to) {
  const float largest = largest_of(values, k);
  const float scale = scale_for(largest);
  std::memcpy(to, &scale, sizeof(scale));
  const float inverse = 1.0f / scale;
  auto* codes = reinterpret_cast<std::int8_t*>(to + sizeof(scale));
  for (std::size_t i = 0; i < k; ++i) codes[i] = static_cast<std::int8_t>(nearest(values[i] * inverse));
  return to + sizeof(scale) + k;
}

inline std::byte* put_indices(const Index* indices, std::size_t k, std::byte* to) {
  std::size_t i = 0;
  for (; i + 2 <= k; i += 2, to += 3) {
    const std::uint32_t pair = indices[i] | static_cast<std::uint32_t>(indices[i + 1]) << 12;
    to[0] = static_cast<std::byte>(pair);
    to[1] = static_cast<std::byte>(pair >> 8);
    to[2] = static_cast<std::byte>(pair >> 16);
  }
  if (i == k) return to;
  std::memcpy(to, &indices[i], 2);
  return to + 2;
}

inline std::byte* put_values(TopkFormat format, const float* values, std::size_t k, std::byte* to) {
  if (format.values == TopkValues::int8) return put_codes(values, k, to);
  if (format.values == TopkValues::int2) return put_pairs(values, k, to);
  std::memcpy(to, values, k * sizeof(float));
  return to + k * sizeof(float);
}

// A chunk that decodes to NaN.
inline std::byte* put_invalid(TopkFormat format, std::size_t k, std::byte* to) {
  const float nan = canonical_nan();
  std::fill_n(to, topk_value_bytes(format, k), std::byte{0});
  for (std::size_t i = 0; i < (format.values == TopkValues::float32 ? k : 1); ++i)
    std::memcpy(to + i * sizeof(nan), &nan, sizeof(nan));
  to += topk_value_bytes(format, k);
  std::array<Index, kTopkChunk> indices;
  for (std::size_t i = 0; i < k; ++i) indices[i] = static_cast<Index>(i);
  return put_indices(indices.data(), k, to);
}

// ---- Reading.

struct Chunk {
  std::size_t k = 0;
  bool finite = true;
  std::array<float, kTopkChunk> values;
  std::array<Index, kTopkChunk> indices;
};

// int8 and int2.
inline void get_codes(TopkFormat format, const std::byte* from, Chunk& chunk) {
  float scale;
  std::memcpy(&scale, from, sizeof(scale));
  chunk.finite = magnitude_of(&scale, 0) < kNotFinite;
  from += sizeof(scale);
  if (format.values == TopkValues::int2) {
    for (std::size_t i = 0; i < chunk.k; ++i) {
      chunk.values[i] = pair_value_of(std::to_integer<unsigned>(from[i / 4]) >> (i % 4 * 2), scale);
    }
    return;
  }
  const auto* codes = reinterpret_cast<const std::int8_t*>(from);
  for (std::size_t i = 0; i < chunk.k; ++i) chunk.values[i] = value_of(codes[i], scale);
}

inline void get_floats(const std::byte* from, Chunk& chunk) {
  std::memcpy(chunk.values.data(), from, chunk.k * sizeof(float));
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < chunk.k; ++i) most = std::max(most, magnitude_of(chunk.values.data(), i));
  chunk.finite = most < kNotFinite;
}

// Reads the indices from number i on, which is even.
inline void get_indices(const std::byte* from, std::size_t i, Chunk& chunk) {
  for (; i + 2 <= chunk.k; i += 2, from += 3) {
    const auto low = std::to_integer<std::uint32_t>(from[0]), middle = std::to_integer<std::uint32_t>(from[1]),
               high = std::to_integer<std::uint32_t>(from[2]);
    chunk.indices[i] = static_cast<Index>(low | (middle & 15u) << 8);
    chunk.indices[i + 1] = static_cast<Index>(middle >> 4 | high << 4);
  }
  if (i < chunk.k) std::memcpy(&chunk.indices[i], from, 2);  // above 4095 if the unused bits are not 0
}

// topk_decode(), for a get(format, from, count, chunk) that reads a chunk of `count` elements; false if it is
// malformed.
template <class Get>
bool decode(TopkFormat format, const std::byte* source, const float* addend, std::span<float> target, Get get) {
  Chunk chunk;
  for (std::size_t begin = 0; begin < target.size(); begin += kTopkChunk) {
    const std::size_t count = std::min(kTopkChunk, target.size() - begin);
    if (!get(format, source, count, chunk)) return false;
    source += topk_chunk_bytes(format, count);
    float* const to = target.data() + begin;
    if (!chunk.finite) {
      std::fill_n(to, count, canonical_nan());
    } else if (addend == nullptr) {
      std::memset(to, 0, count * sizeof(float));
      for (std::size_t i = 0; i < chunk.k; ++i) to[chunk.indices[i]] = chunk.values[i];
    } else {
      if (addend != target.data()) std::memcpy(to, addend + begin, count * sizeof(float));
      for (std::size_t i = 0; i < chunk.k; ++i) {
        float& sum = to[chunk.indices[i]];
        sum = reference::canonical(sum + chunk.values[i]);
      }
    }
  }
  return true;
}

}  // namespace qccl::kernels::topk

namespace qccl::kernels::reference {

// Encodes a chunk of n elements, 1..kTopkChunk; returns the end of its output.
inline std::byte* topk_encode_chunk(TopkFormat format, const float* x, std::size_t n, std::byte* to) {
  const std::size_t k = topk_kept(format, n);
  std::array<topk::Index, kTopkChunk> indices;
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    indices[i] = static_cast<topk::Index>(i);
    most = std::max(most, topk::magnitude_of(x, i));
  }
  if (most >= topk::kNotFinite) return topk::put_invalid(format, k, to);
  const auto comes_before = [&](topk::Index a, topk::Index b) {
    const std::uint32_t of_a = topk::magnitude_of(x, a), of_b = topk::magnitude_of(x, b);
    return of_a != of_b ? of_a > of_b : a < b;
  };
  std::nth_element(indices.begin(), indices.begin() + (k - 1), indices.begin() + n, comes_before);
  std::sort(indices.begin(), indices.begin() + k);
  std::array<float, kTopkChunk> values;
  for (std::size_t i = 0; i < k; ++i) values[i] = x[indices[i]];
  return topk::put_indices(indices.data(), k, topk::put_values(format, values.data(), k, to));
}

// Reads the chunk of n elements at `from`; false if its indices do not rise or lie outside the chunk.
inline bool topk_get_chunk(TopkFormat format, const std::byte* from, std::size_t n, topk::Chunk& chunk) {
  chunk.k = topk_kept(format, n);
  format.values == TopkValues::float32 ? topk::get_floats(from, chunk) : topk::get_codes(format, from, chunk);
  topk::get_indices(from + topk_value_bytes(format, chunk.k), 0, chunk);
  bool rising = chunk.indices[chunk.k - 1] < n;
  for (std::size_t i = 1; i < chunk.k; ++i) rising &= chunk.indices[i - 1] < chunk.indices[i];
  return rising;
}

}  // namespace qccl::kernels::reference
