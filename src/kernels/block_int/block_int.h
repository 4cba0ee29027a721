// Symmetric integers of float32 blocks, one scale a block (the rule: block_int_reference.h). Dispatched at run time to
// the widest instruction set; the same bytes on all.
//
// Encoded slice of n elements in blocks of `block_size`, the last one shorter:
//
// | bytes                         | content                                                              |
// |-------------------------------|----------------------------------------------------------------------|
// | 2 * ceil(n / block_size)      | per block: scale (bfloat16, little-endian)                           |
// | ceil(n * bits / 8)            | integers of all blocks without gaps, in two's complement of `bits`   |
// |                               | bits, each from its lowest bit on, the first in the lowest bits of   |
// |                               | the first byte; last bits are 0. 8 bits: an int8 each                |
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "kernels/lanes/bit_stream.h"
#include "kernels/lanes/random.h"

namespace qccl::kernels {

struct BlockIntFormat {
  int bits = 8;                    // 2..8
  std::uint32_t block_size = 128;  // 1..65536; fast: multiples of 32 up to 1024, of 64 above
};

inline constexpr std::size_t kBlockScaleBytes = 2;

QCCL_HD constexpr std::size_t block_int_scale_bytes(BlockIntFormat format, std::size_t n) {
  return bucket_count(format.block_size, n) * kBlockScaleBytes;
}
QCCL_HD constexpr std::size_t block_int_encoded_bytes(BlockIntFormat format, std::size_t n) {
  return block_int_scale_bytes(format, n) + packed_bytes(format.bits, n);
}

// Writes exactly block_int_encoded_bytes(). `target` of any alignment, not overlapping `source`. Rounds to
// nearest even, or stochastically by the bytes of `random`, whose first element is source[0].
void block_int_encode(BlockIntFormat format, const float* source, std::size_t n, std::byte* target,
                      const RandomStream* random = nullptr);

// target[i] = decoded[i], or with an addend target[i] = addend[i] + decoded[i], NaN results canonical. `addend` is
// null, or `target`, or does not overlap it. Reads exactly block_int_encoded_bytes(format, n), whatever the bytes are.
void block_int_decode(BlockIntFormat format, const std::byte* source, const float* addend, float* target,
                      std::size_t n);

}  // namespace qccl::kernels
