// The specification of topk.h: which elements of a chunk are sent, and the bytes of a chunk. The vector code equals it
// byte for byte.
//
// The selection is exact, so it does not matter how it is found: the bytes depend on no order of additions and no
// estimate.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/topk/topk_chunk.h"

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
  format.int8_values ? topk::get_codes(from, chunk) : topk::get_floats(from, chunk);
  topk::get_indices(from + topk_value_bytes(format, chunk.k), 0, chunk);
  bool rising = chunk.indices[chunk.k - 1] < n;
  for (std::size_t i = 1; i < chunk.k; ++i) rising &= chunk.indices[i - 1] < chunk.indices[i];
  return rising;
}

}  // namespace qccl::kernels::reference
