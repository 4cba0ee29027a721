// Max-min quantization of 9 to 31 bits: the layout of minmax.h and the same rule in double, one element at a time,
// without a promise of speed.
//
// With D = 2^bits - 1 and every operation in double, rounded to nearest even:
//
//   unit = (maximum - minimum) / D rounded to float32, at least 2^-126
//   code = floor(min((x - minimum) / unit, D) + r), r = 0.5, or (byte + 0.5) / 256 with a random byte
//   y    = minimum + code * unit, at most FLT_MAX in magnitude, rounded to float32
//
// A minimum of -0 counts as +0. A bucket with an element that is not finite has the header {NaN, NaN}, zero codes, and
// decodes to NaN; so does any other header that is not finite.
//
// Error: |x - y| <= unit / 2 + 3 ulp(max |x|), stochastic unit + 3 ulp(max |x|): 2 ulp if rounding made the unit too
// small for D units to reach the maximum, 1 for the rounding of y.
#pragma once

#include "kernels/minmax/minmax.h"

namespace qccl::kernels {

// Like minmax_encode(), minmax_decode() and minmax_decode_add(), for these widths.
void minmax_encode_in_double(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                             const RandomStream* random);
void minmax_decode_in_double(MinmaxFormat format, const std::byte* source, float* target, std::size_t n);
void minmax_decode_add_in_double(MinmaxFormat format, const std::byte* source, const float* addend, float* target,
                                 std::size_t n);

}  // namespace qccl::kernels
