// Max-min quantization of float32 buckets to packed codes (the rule: minmax_reference.h). Dispatched at run time to the
// widest instruction set; the same bytes on all.
//
// Encoded slice of n elements in buckets of `bucket_size`, the last one shorter:
//
// | bytes                          | content                                                          |
// |--------------------------------|------------------------------------------------------------------|
// | 8 * ceil(n / bucket_size)      | per bucket: unit, minimum (float32, little-endian)               |
// | ceil(n * bits / 8)             | codes of all buckets without gaps, each from its lowest bit on,  |
// |                                | the first in the lowest bits of the first byte; last bits are 0  |
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "kernels/lanes/bit_stream.h"
#include "kernels/lanes/random.h"

namespace qccl::kernels {

struct MinmaxFormat {
  int bits = 8;                      // 1..31; fast: 1..8 and 16, the others in double (rule: minmax.cc)
  std::uint32_t bucket_size = 1024;  // 1..65536
};

inline constexpr std::size_t kBucketHeaderBytes = 8;

QCCL_HD constexpr std::size_t minmax_header_bytes(MinmaxFormat format, std::size_t n) {
  return bucket_count(format.bucket_size, n) * kBucketHeaderBytes;
}
QCCL_HD constexpr std::size_t minmax_encoded_bytes(MinmaxFormat format, std::size_t n) {
  return minmax_header_bytes(format, n) + packed_bytes(format.bits, n);
}

// Writes exactly minmax_encoded_bytes(). `target` of any alignment, not overlapping `source`. Rounds to nearest,
// half up, or stochastically by the bytes of `random`, whose first element is source[0].
void minmax_encode(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                   const RandomStream* random = nullptr);

// target[i] = decoded[i], or with an addend target[i] = addend[i] + decoded[i], NaN results canonical. `addend` is
// null, or `target`, or does not overlap it. Reads exactly minmax_encoded_bytes(format, n), whatever the bytes are.
void minmax_decode(MinmaxFormat format, const std::byte* source, const float* addend, float* target, std::size_t n);

}  // namespace qccl::kernels
