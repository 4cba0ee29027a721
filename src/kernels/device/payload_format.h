// What the payload of a slice looks like, for the kernels of devices.
#pragma once

#include <cstdint>

namespace qccl::kernels::device {

enum class PayloadKind : std::uint8_t { raw, float16, bfloat16, minmax, block_int, sign, grid };

struct PayloadFormat {
  PayloadKind kind = PayloadKind::raw;
  std::uint8_t bits = 0;     // minmax 1..8, block_int 2..8
  bool stochastic = false;   // minmax, block_int, grid
  bool norm_scale = false;   // sign
  std::uint32_t bucket = 1;  // minmax, block_int, sign: 1..65536; grid: 1, or the elements that share a relative step
  float step = 0;            // grid: of all elements, or over the root mean square of a bucket
};

constexpr bool is_encoded(const PayloadFormat& format) { return format.kind != PayloadKind::raw; }

}  // namespace qccl::kernels::device
