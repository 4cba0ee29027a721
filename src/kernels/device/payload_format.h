// What the payload of a slice looks like, for the kernels of devices.
#pragma once

#include <cstdint>

namespace qccl::kernels::device {

enum class PayloadKind : std::uint8_t { raw, float16, bfloat16, minmax, block_int, sign };

struct PayloadFormat {
  PayloadKind kind = PayloadKind::raw;
  std::uint8_t bits = 0;     // minmax 1..8, block_int 2..8
  bool stochastic = false;   // minmax, block_int
  bool norm_scale = false;   // sign
  std::uint32_t bucket = 1;  // minmax, block_int, sign: 1..65536
};

constexpr bool is_encoded(const PayloadFormat& format) { return format.kind != PayloadKind::raw; }

}  // namespace qccl::kernels::device
