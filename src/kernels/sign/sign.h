// One bit an element: its sign, with a scale for each bucket (the rule: sign_reference.h). Dispatched at run time to
// the widest instruction set; the same bytes on all.
//
// Encoded slice of n elements, B = ceil(n / bucket_size) buckets:
//
// | bytes       | content                                                                          |
// |-------------|----------------------------------------------------------------------------------|
// | 4 * B       | per bucket: its scale, float32 (little-endian)                                   |
// | ceil(n / 8) | signs of all elements, lowest bit first: 1 for x < 0. Padded with zeros to a byte |
//
// That is 1 + 32 / bucket_size bits an element. Bucket sizes that are multiples of 8 are fast, multiples of 64 fastest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "kernels/lanes/bit_stream.h"

namespace qccl::kernels {

struct SignFormat {
  std::uint32_t bucket_size = 256;  // 1..65536
  bool norm_scale = false;          // root mean square instead of mean magnitude. Only for encoding.
};

inline constexpr std::size_t kSignScaleBytes = 4;

QCCL_HD constexpr std::size_t sign_scale_bytes(SignFormat format, std::size_t n) {
  return kSignScaleBytes * bucket_count(format.bucket_size, n);
}
QCCL_HD constexpr std::size_t sign_bit_bytes(std::size_t n) { return packed_bytes(1, n); }
QCCL_HD constexpr std::size_t sign_encoded_bytes(SignFormat format, std::size_t n) {
  return sign_scale_bytes(format, n) + sign_bit_bytes(n);
}

// Writes exactly sign_encoded_bytes(), and unless `residual` is null, residual[i] = (source[i] - decoded[i]) * factor,
// unchanged where the result is not finite. `target` of any alignment; the arrays do not overlap.
void sign_encode(SignFormat format, const float* source, std::size_t n, std::byte* target, float factor = 1,
                 float* residual = nullptr);

// target[i] = decoded[i], or with an addend target[i] = addend[i] + decoded[i], NaN results canonical. `addend` is
// null, or `target`, or does not overlap it. Reads exactly sign_encoded_bytes(format, n), whatever the bytes are.
void sign_decode(SignFormat format, const std::byte* source, const float* addend, float* target, std::size_t n);

}  // namespace qccl::kernels
