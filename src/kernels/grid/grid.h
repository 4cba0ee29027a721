// Multiples of a step (the rule: grid_reference.h), each block of 32 in as many bits as its largest needs. Dispatched
// at run time to the widest instruction set; the same bytes on all.
//
// Encoded slice of n elements, in blocks of 32, the last one shorter:
//
// | bytes                   | content                                                                    |
// |-------------------------|----------------------------------------------------------------------------|
// | 2 * ceil(n / bucket)    | relative steps only: the step of each bucket (bfloat16, little-endian)     |
// | ceil(blocks / 2)        | the form of each block in 4 bits, the first in the lower half; last bits 0 |
// | of each block           | its elements                                                               |
//
// | form  | a block of m elements takes                                                                  |
// |-------|----------------------------------------------------------------------------------------------|
// | 0..14 | w * ceil(m / 8): zigzag integers of w bits; w is the form, for form 14 it is 15               |
// | 15    | 4 m: float32, where a value is too large for the integers; never with relative steps          |
//
// Eight integers take w bytes. Up to 8 bits they follow each other without gaps, each from its lowest bit on, the first
// in the lowest bits. From 9 bits on their lower bytes come first, then their upper w - 8 bits without gaps. Missing
// elements of the last eight are 0. The zigzag integer of q is 2 q, or -2 q - 1 below 0.
//
// With the entropy stage the steps are followed by segments of 32768 elements, the last one shorter, in groups of 128
// (grid_entropy.h):
//
// | bytes                   | content                                                                    |
// |-------------------------|----------------------------------------------------------------------------|
// | ceil(groups / 2)        | the class of each group in 4 bits, the first in the lower half; last bits 0|
// | 32 + 2 + 2 w            | if any class is 1..14: the coders' states, the number w of words, and they |
// | of each group           | class 15: the forms of its blocks, as above, then these; 1..14: the lower  |
// |                         | bits of its integers, packed as in a block, then a byte for each escape    |
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/host_device.h"
#include "kernels/lanes/bit_stream.h"
#include "kernels/lanes/random.h"

namespace qccl::kernels {

struct GridFormat {
  float step = 0;                    // 2^-118..2^112 for all elements; 0: relative steps
  float relative = 0.5f;             // 2^-5..4: the step over the root mean square of a bucket
  std::uint32_t bucket_size = 4096;  // of relative steps: a multiple of 256, up to 65536
  bool entropy = false;              // with the entropy stage
  QCCL_HD constexpr bool is_relative() const { return step == 0; }
};

inline constexpr std::size_t kGridBlock = 32;
inline constexpr std::size_t kGridPart = 1024;  // elements for which random numbers are drawn together
inline constexpr std::size_t kGridStepBytes = 2;
inline constexpr int kGridWidest = 15;
inline constexpr std::size_t kGridSmallestBucket = 256;

QCCL_HD constexpr std::size_t grid_step_bytes(const GridFormat& format, std::size_t n) {
  return format.is_relative() ? bucket_count(format.bucket_size, n) * kGridStepBytes : 0;
}
QCCL_HD constexpr std::size_t grid_form_bytes(std::size_t n) { return (bucket_count(kGridBlock, n) + 1) / 2; }

// Upper limit of a slice: all blocks in float32, or with relative steps in the widest integers that a bucket's root
// mean square allows.
std::size_t grid_max_bytes(const GridFormat& format, std::size_t n);

// Returns the number of bytes of the slice; `target` has room for grid_max_bytes(), all of which may be written to. Any
// alignment, not overlapping `source`. Rounds to nearest even, or stochastically by the bytes of `random`, whose first
// element is source[0].
std::size_t grid_encode(const GridFormat& format, const float* source, std::size_t n, std::byte* target,
                        const RandomStream* random = nullptr);

// The bytes of the slice of n elements at the front of `source`, by its headers; nothing if there is no such slice, or
// not all of it. Without the entropy stage.
std::optional<std::size_t> grid_slice_bytes(const GridFormat& format, const std::byte* source, std::size_t bytes,
                                            std::size_t n);

// target[i] = decoded[i], or with an addend target[i] = addend[i] + decoded[i], NaN results canonical. `addend` is
// null, or `target`, or does not overlap it. False if `source` is not exactly the bytes of a slice of n elements; the
// contents of `target` are then unspecified.
[[nodiscard]] bool grid_decode(const GridFormat& format, const std::byte* source, std::size_t bytes,
                               const float* addend, float* target, std::size_t n);

}  // namespace qccl::kernels
