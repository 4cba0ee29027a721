// The specification of block integers, one element at a time. The vector code equals it byte for byte.
//
// With Q = 2^(bits - 1) - 1 and amax the largest magnitude of a block, all in float32, every operation rounded by
// itself to nearest even:
//
//   scale   = amax / Q, rounded up to bfloat16 by integer operations; at least 2^-118, at most the largest
//             bfloat16 s with a finite Q * s
//   inverse = 1 / scale
//   nearest:     q = x * inverse rounded to nearest even, clamped to [-Q, Q]
//   stochastic:  t = x * (256 * inverse) rounded to nearest even, clamped to [-256 Q, 256 Q]
//                q = (t + byte) >> 8, byte in 0..255 random
//   y = q * scale
//
// Clamping has an effect only if the scale is at its upper limit, and changes values by less than 0.06 steps there (one
// limit for each width): |x| * inverse exceeds Q by at most Q * 2^-22 if the scale was rounded up. Zero
// stays zero, of either sign: its integer is 0. A product q * scale has at most 16 bits: it is exact.
//
// A block with an element that is not finite has the scale NaN (0x7FC0) and integers 0. Any scale that this rule cannot
// give (NaN, infinite, negative, too small, too large) decodes to NaN.
//
// Error, nearest: |x - y| <= scale * (1/2 + Q * 2^-23): half an ulp of the inverse and one of the product, times up
// to Q. Stochastic: |x - y| < scale, and the mean of y over the bytes is within scale * (1/512 + Q * 2^-23) of x,
// or of +-Q * scale beyond the upper limit. Scale is at most amax / Q * (1 + 2^-7 + 2^-22), or 2^-118.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/half.h"
#include "base/host_device.h"

namespace qccl::kernels::reference {

// Makes 256 / scale finite.
inline constexpr std::uint32_t kSmallestScaleBits = bit_cast<std::uint32_t>(0x1p-118f);
inline constexpr std::uint32_t kInvalidScaleBits = kCanonicalNanBits;
inline constexpr std::uint32_t kInfinityBits = 0x7F800000u;
inline constexpr float kLargestFloat = std::numeric_limits<float>::max();
inline constexpr float kRandomSteps = 256.0f;  // per step of the integers

QCCL_HD constexpr int largest_integer(int bits) { return (1 << (bits - 1)) - 1; }

QCCL_HD constexpr std::uint32_t largest_scale_bits(int bits) {
  const float largest = kLargestFloat / static_cast<float>(largest_integer(bits));
  return bit_cast<std::uint32_t>(largest) & 0xFFFF0000u;
}

QCCL_HD constexpr std::uint32_t magnitude_bits(float x) { return bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu; }

// Float bits of the scale of a block with this largest magnitude_bits().
QCCL_HD constexpr std::uint32_t make_scale_bits(std::uint32_t magnitude, int bits) {
  if (magnitude >= kInfinityBits) return kInvalidScaleBits;
  const float quotient = bit_cast<float>(magnitude) / static_cast<float>(largest_integer(bits));
  const std::uint32_t up = (bit_cast<std::uint32_t>(quotient) + 0xFFFFu) & 0xFFFF0000u;
  if (up < kSmallestScaleBits) return kSmallestScaleBits;
  return up < largest_scale_bits(bits) ? up : largest_scale_bits(bits);
}

// The value of a stored scale.
QCCL_HD constexpr float read_scale(std::uint16_t stored, int bits) {
  const std::uint32_t scale = std::uint32_t{stored} << 16;
  const bool valid = scale >= kSmallestScaleBits && scale <= largest_scale_bits(bits);
  return valid ? bit_cast<float>(scale) : canonical_nan();
}

// For magnitudes below 2^22: the last place of 1.5 * 2^23 is 1.
QCCL_HD constexpr std::int32_t round_to_even(float value) {
  constexpr float kShift = 0x1.8p23f;
  return static_cast<std::int32_t>(bit_cast<std::uint32_t>(value + kShift) - bit_cast<std::uint32_t>(kShift));
}

// Also clamps to integers up to `largest`.
QCCL_HD constexpr std::int32_t to_integer(float x, float inverse, std::int32_t largest) {
  return clamped(round_to_even(x * inverse), -largest, largest);
}
QCCL_HD constexpr std::int32_t to_integer(float x, float inverse, std::int32_t largest, std::uint8_t byte) {
  const std::int32_t steps = round_to_even(x * (inverse * kRandomSteps));
  return (clamped(steps, -256 * largest, 256 * largest) + byte) >> 8;
}

// The integer of a two's complement code of `bits` bits.
QCCL_HD constexpr std::int32_t sign_extended(std::uint32_t code, int bits) {
  const std::uint32_t sign = 1u << (bits - 1);
  return static_cast<std::int32_t>((code ^ sign) - sign);
}

QCCL_HD constexpr float from_integer(std::int32_t integer, float scale) {
  return scale != scale ? canonical_nan() : static_cast<float>(integer) * scale;
}

}  // namespace qccl::kernels::reference
