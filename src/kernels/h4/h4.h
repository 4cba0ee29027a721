// Randomized Hadamard transform and Lloyd-Max codebook of 2, 3 or 4 bits over blocks of 256 float32 (the rule:
// h4_reference.h). Dispatched at run time to the widest instruction set; the same bytes on all.
//
// Encoded slice of n elements, B = ceil(n / 256) blocks, the last one padded with zeros; nothing if n is 0:
//
// | bytes         | content                                                                                |
// |---------------|----------------------------------------------------------------------------------------|
// | 4             | seed of the signs (little-endian)                                                      |
// | 4             | number of the first block in the tensor, modulo 2^32 (little-endian)                   |
// | 2 * B         | per block: its scale, bfloat16 (little-endian). Sign bit: transformed twice            |
// | 32 * bits * B | per block: 256 codes, in the order of h4_reference.h                                   |
//
// For full blocks at 4 bits that is 4.0625 bits an element, plus 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/lanes/bit_stream.h"

namespace qccl::kernels {

inline constexpr std::size_t kH4Block = 256;

struct H4Format {
  int bits = 4;  // 2..4
  // true: scales so that the decoded block's inner product with the block is the block's squared norm (EDEN). false:
  // scales for the least error. Only for encoding.
  bool unbiased = true;
};

// The only inputs of the signs.
struct H4Signs {
  std::uint32_t seed = 0;
  std::uint32_t first_block = 0;
};

inline constexpr std::size_t kH4SliceHeaderBytes = 8;
inline constexpr std::size_t kH4ScaleBytes = 2;

constexpr std::size_t h4_block_count(std::size_t n) { return bucket_count(kH4Block, n); }
constexpr std::size_t h4_code_bytes(int bits) { return kH4Block / 8 * static_cast<std::size_t>(bits); }
constexpr std::size_t h4_encoded_bytes(H4Format format, std::size_t n) {
  return n == 0 ? 0 : kH4SliceHeaderBytes + h4_block_count(n) * (kH4ScaleBytes + h4_code_bytes(format.bits));
}

// Writes exactly h4_encoded_bytes(). `target` of any alignment, not overlapping `source`.
void h4_encode(H4Format format, H4Signs signs, const float* source, std::size_t n, std::byte* target);

// target[i] = decoded[i], or with an addend target[i] = addend[i] + decoded[i], NaN results canonical. `addend` is
// null, or `target`, or does not overlap it. Reads exactly h4_encoded_bytes(format, n), whatever the bytes are.
void h4_decode(H4Format format, const std::byte* source, const float* addend, float* target, std::size_t n);

}  // namespace qccl::kernels
