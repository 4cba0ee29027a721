// float16 and bfloat16 to and from float, by integer operations: round to nearest even, the same bits on every machine.
// NaN becomes the canonical quiet NaN.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "qccl/types.h"

namespace qccl {

inline constexpr std::uint32_t kCanonicalNanBits = 0x7FC00000u;
QCCL_HD constexpr float canonical_nan() { return bit_cast<float>(kCanonicalNanBits); }

QCCL_HD constexpr float to_float(bfloat16 value) {
  return bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

QCCL_HD constexpr bfloat16 to_bfloat16(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {0x7FC0};
  const std::uint32_t round = 0x7FFFu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>((bits + round) >> 16)};
}

QCCL_HD constexpr float to_float(float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1Fu;
  std::uint32_t mantissa = value.bits & 0x3FFu;
  if (exponent == 31) return bit_cast<float>(mantissa != 0 ? kCanonicalNanBits : sign | 0x7F800000u);
  if (exponent != 0) return bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return bit_cast<float>(sign);
  std::uint32_t shift = 0;
  while ((mantissa & 0x400u) == 0) {
    mantissa <<= 1;
    ++shift;
  }
  return bit_cast<float>(sign | ((113 - shift) << 23) | ((mantissa & 0x3FFu) << 13));
}

QCCL_HD constexpr float16 to_float16(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {0x7E00};
  if (magnitude >= 0x47800000u) return {static_cast<std::uint16_t>(sign | 0x7C00u)};  // 65536 and above
  if (magnitude >= 0x38800000u) {                                                     // normal: from 2^-14
    const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
    return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
  }
  if (magnitude < 0x33000000u) return {static_cast<std::uint16_t>(sign)};  // below 2^-25: zero
  const std::uint32_t shift = 126 - (magnitude >> 23);                     // subnormal
  const std::uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t rounded = (mantissa + half - 1 + ((mantissa >> shift) & 1u)) >> shift;
  return {static_cast<std::uint16_t>(sign | rounded)};
}

}  // namespace qccl
