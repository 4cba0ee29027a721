// The passes of DeepSpeed's 1-bit compressed all-reduce (include/qccl/onebit.h has the algorithm): pure functions over
// arrays, the same bytes on every instruction set.
//
// A sign is one bit: 1 for b >= 0, for -0 and for NaN, 0 for b < 0, the first element in the highest bit of a byte
// (numpy.packbits). Any alignment. NaN results are canonical (0x7FC00000).
//
// Sums of squares are exact products in double, added in a fixed tree: in blocks of 4096 elements, element i of a
// block in lane i mod 16; then lanes i and i + 8, i + 4, i + 2, i + 1; then blocks in order.
#pragma once

#include <cstddef>

namespace qccl::kernels {

inline constexpr std::size_t kOnebitGroup = 8;  // elements of a byte of signs

// error[i] += input[i], where input has zeros from `inputs` (at most n) on. Writes the n/8 bytes of signs of `error`
// and returns the sum of its squares. n is a multiple of 8; `input` and `error` do not overlap.
double onebit_pack(const float* input, std::size_t inputs, float* error, std::size_t n, std::byte* signs);

// values[i] -= +scale or -scale, by its own sign: the error of sending 1 bit at that scale.
void onebit_subtract(float scale, float* values, std::size_t n);

// Elements that are all +scale or -scale.
struct SignedPart {
  const std::byte* signs;
  float scale;
};

// error[i] = (part 0's element i + part 1's + ...) + error[i]; writes the n/8 bytes of signs of the result and returns
// the sum of its squares. n is a multiple of 8; `parts` is at least 1.
double onebit_sum(const SignedPart* parts, std::size_t part_count, float* error, std::size_t n, std::byte* signs);

// target[i] = +part.scale or -part.scale; canonical NaN if the scale is NaN. `past_cache`: for targets so large that
// they leave the cache before they are read; writes without reading the old contents.
void onebit_expand(SignedPart part, float* target, std::size_t n, bool past_cache = false);

}  // namespace qccl::kernels
