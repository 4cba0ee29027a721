// float16 and bfloat16 through float32 and back without losing a bit: for data that is only moved.
//
// Like widen() and narrow() of reduce.h, except that NaN keeps its sign and payload: a NaN of 16 bits becomes the NaN
// of float32 with the same sign and the payload in the upper mantissa bits, and the reverse (a NaN with no payload
// there gets the quiet bit, so that it stays a NaN). All 65536 values come back unchanged. Any alignment, any n.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/half.h"

namespace qccl::kernels {

// `type`: float16 or bfloat16.
void widen_exactly(DataType type, float* target, const void* source, std::size_t n);
void narrow_exactly(DataType type, void* target, const float* source, std::size_t n);

namespace reference {

// One value, as bits of float32 and of `type`: the specification.
constexpr std::uint32_t widen_exactly(DataType type, std::uint16_t half) {
  if (type == DataType::bfloat16) return static_cast<std::uint32_t>(half) << 16;
  const bool is_nan = (half & 0x7FFFu) > 0x7C00u;
  if (!is_nan) return std::bit_cast<std::uint32_t>(to_float(float16{half}));
  return (half & 0x8000u) << 16 | 0x7F800000u | (half & 0x3FFu) << 13;
}

constexpr std::uint16_t narrow_exactly(DataType type, std::uint32_t bits) {
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const auto value = std::bit_cast<float>(bits);
  if (!is_nan) return type == DataType::bfloat16 ? to_bfloat16(value).bits : to_float16(value).bits;
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  if (type == DataType::bfloat16) {
    const std::uint32_t payload = bits >> 16 & 0x7Fu;
    return static_cast<std::uint16_t>(sign | 0x7F80u | (payload != 0 ? payload : 0x40u));
  }
  const std::uint32_t payload = bits >> 13 & 0x3FFu;
  return static_cast<std::uint16_t>(sign | 0x7C00u | (payload != 0 ? payload : 0x200u));
}

}  // namespace reference
}  // namespace qccl::kernels
