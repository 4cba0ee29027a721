// The largest elements of float32 data by magnitude, with their indices, as a sparse gradient sends them. Dispatched at
// run time to the widest instruction set; the same bytes on all. The rule, in scalar code: topk_reference.h.
//
// Data is cut into chunks of kTopkChunk elements, the last one shorter. A chunk of n elements sends exactly
// k = ceil(kept * n / kTopkChunk) of them: those of largest magnitude, among equal ones the first. All others decode
// to 0. This is the least possible error for k elements:
//
//   ||x - y||^2 <= (1 - k / n) ||x||^2        (float32 values; int8: plus k (scale / 2)^2; int2: plus k scale^2)
//
// An encoded slice, chunk by chunk without gaps:
//
// | bytes            | content                                                                             |
// |------------------|-------------------------------------------------------------------------------------|
// | 4                | int8 and int2 values only: scale, float32 little-endian                             |
// | 4 k, k or k / 4  | values in index order: float32, int8 codes, or int2 codes, padded with 0 to a byte  |
// | ceil(12 k / 8)   | indices in the chunk, rising, 12 bits each, the first in the lowest bits; rest 0    |
//
// int2: scale = (largest magnitude) / 3, at least 2^-126, or 0; y = scale, or 3 scale from a magnitude of 2 scale on,
// with x's sign, at most FLT_MAX. A code's bit 0 says 3 scale, bit 1 a negative sign; the first code is in the lowest
// bits of its byte.
//
// int8: scale = (largest magnitude) / 127, at least 2^-126; code = x * (1 / scale), to nearest even; y = code * scale,
// at most FLT_MAX. A chunk with an element that is not finite has NaN for its values or its scale, and its first k
// indices; a chunk with any value, or a scale, that is not finite decodes to NaN as a whole.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl::kernels {

inline constexpr std::size_t kTopkChunk = 4096;

enum class TopkValues : std::uint8_t { float32, int8, int2 };

struct TopkFormat {
  std::uint32_t kept = 41;  // elements sent of a whole chunk: 1..kTopkChunk
  TopkValues values = TopkValues::float32;
};

// Number of elements sent of a chunk of n elements, 1..kTopkChunk.
constexpr std::size_t topk_kept(TopkFormat format, std::size_t n) {
  return (format.kept * n + kTopkChunk - 1) / kTopkChunk;
}
constexpr std::size_t topk_value_bytes(TopkFormat format, std::size_t k) {
  if (format.values == TopkValues::float32) return 4 * k;
  return format.values == TopkValues::int8 ? 4 + k : 4 + (k + 3) / 4;
}
constexpr std::size_t topk_chunk_bytes(TopkFormat format, std::size_t n) {
  const std::size_t k = topk_kept(format, n);
  return topk_value_bytes(format, k) + (3 * k + 1) / 2;
}
constexpr std::size_t topk_encoded_bytes(TopkFormat format, std::size_t n) {
  const std::size_t tail = n % kTopkChunk;
  return n / kTopkChunk * topk_chunk_bytes(format, kTopkChunk) + (tail == 0 ? 0 : topk_chunk_bytes(format, tail));
}

// Writes exactly topk_encoded_bytes(). `target` of any alignment, not overlapping `source`.
void topk_encode(TopkFormat format, const float* source, std::size_t n, std::byte* target);

// target[i] = decoded[i], or with an addend target[i] = addend[i] + decoded[i] for elements that were sent, NaN results
// canonical; else target[i] = addend[i], unchanged in every bit. `addend` is null, or `target`, or does not overlap it.
// Reads exactly topk_encoded_bytes(format, n). False if indices do not rise or lie outside their chunk; the contents of
// `target` are then unspecified.
[[nodiscard]] bool topk_decode(TopkFormat format, const std::byte* source, const float* addend, float* target,
                               std::size_t n);

}  // namespace qccl::kernels
