// The specification of reduce.h, one element at a time. The vector code equals it byte for byte and calls it for the
// elements left over at an array's end.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/half.h"
#include "base/host_device.h"
#include "kernels/lanes/value.h"
#include "qccl/types.h"

namespace qccl::kernels::reference {

QCCL_HD constexpr bool adds(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum;
}

// The bitwise operation that equals `op` on booleans.
QCCL_HD constexpr ReduceOp logical(ReduceOp op) {
  if (op == ReduceOp::bit_xor) return op;
  return op == ReduceOp::prod || op == ReduceOp::min || op == ReduceOp::bit_and ? ReduceOp::bit_and : ReduceOp::bit_or;
}

template <class T>
QCCL_HD T combine_floats(ReduceOp op, T a, T b) {
  if (op == ReduceOp::prod) return canonical(a * b);
  if (adds(op)) return canonical(a + b);
  if (a != a || b != b) return kQuietNan<T>;
  if (op == ReduceOp::min) return a < b || (a == b && std::signbit(a)) ? a : b;
  return a > b || (a == b && !std::signbit(a)) ? a : b;
}

template <class T>
QCCL_HD constexpr T combine_integers(ReduceOp op, T a, T b) {
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  if (op == ReduceOp::prod) return static_cast<T>(x * y);
  if (adds(op)) return static_cast<T>(x + y);
  if (op == ReduceOp::bit_and) return static_cast<T>(x & y);
  if (op == ReduceOp::bit_or) return static_cast<T>(x | y);
  if (op == ReduceOp::bit_xor) return static_cast<T>(x ^ y);
  return (op == ReduceOp::min) == (a < b) ? a : b;
}

template <class T>
QCCL_HD T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return combine_floats(op, a, b);
  } else {
    return combine_integers(op, a, b);
  }
}

QCCL_HD constexpr float widened(DataType type, std::uint16_t bits) {
  return type == DataType::float16 ? to_float(float16{bits}) : to_float(bfloat16{bits});
}
inline float widened_at(DataType type, const void* source, std::size_t index) {
  return widened(type, load_at<std::uint16_t>(source, index));
}

QCCL_HD constexpr std::uint16_t narrowed(DataType type, float value) {
  return type == DataType::float16 ? to_float16(value).bits : to_bfloat16(value).bits;
}

// One value, as bits of float32 and of `type`.
QCCL_HD constexpr std::uint32_t widen_exactly(DataType type, std::uint16_t half) {
  if (type == DataType::bfloat16) return static_cast<std::uint32_t>(half) << 16;
  const bool is_nan = (half & 0x7FFFu) > 0x7C00u;
  if (!is_nan) return bit_cast<std::uint32_t>(to_float(float16{half}));
  return (half & 0x8000u) << 16 | 0x7F800000u | (half & 0x3FFu) << 13;
}

QCCL_HD constexpr std::uint16_t narrow_exactly(DataType type, std::uint32_t bits) {
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const auto value = bit_cast<float>(bits);
  if (!is_nan) return type == DataType::bfloat16 ? to_bfloat16(value).bits : to_float16(value).bits;
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  if (type == DataType::bfloat16) {
    const std::uint32_t payload = bits >> 16 & 0x7Fu;
    return static_cast<std::uint16_t>(sign | 0x7F80u | (payload != 0 ? payload : 0x40u));
  }
  const std::uint32_t payload = bits >> 13 & 0x3FFu;
  return static_cast<std::uint16_t>(sign | 0x7C00u | (payload != 0 ? payload : 0x200u));
}

// The functions of the same names in reduce.h for elements [begin, end).
template <class T>
void reduce(ReduceOp op, void* target, const void* a, const void* b, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) store_at(target, i, combine(op, load_at<T>(a, i), load_at<T>(b, i)));
}

inline void reduce_booleans(ReduceOp op, void* target, const void* a, const void* b, std::size_t begin,
                            std::size_t end) {
  const auto truth = [](const void* from, std::size_t i) { return std::uint8_t{load_at<std::uint8_t>(from, i) != 0}; };
  for (std::size_t i = begin; i < end; ++i) {
    store_at(target, i, combine_integers<std::uint8_t>(logical(op), truth(a, i), truth(b, i)));
  }
}

inline void widen(DataType type, float* target, const void* source, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) store_at(target, i, widened_at(type, source, i));
}

inline void reduce_widened(DataType type, ReduceOp op, float* target, const float* a, const void* b, std::size_t begin,
                           std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    store_at(target, i, combine(op, load_at<float>(a, i), widened_at(type, b, i)));
  }
}

inline void narrow(DataType type, void* target, const float* source, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) store_at(target, i, narrowed(type, load_at<float>(source, i)));
}

inline void widen_exactly(DataType type, float* target, const void* source, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    store_at(target, i, widen_exactly(type, load_at<std::uint16_t>(source, i)));
  }
}

inline void narrow_exactly(DataType type, void* target, const float* source, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    store_at(target, i, narrow_exactly(type, load_at<std::uint32_t>(source, i)));
  }
}

template <class T>
void divide(T divisor, void* data, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) store_at(data, i, canonical(load_at<T>(data, i) / divisor));
}

template <class T>
void scale(T factor, void* target, const void* source, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) store_at(target, i, canonical(load_at<T>(source, i) * factor));
}

inline void scale_halves(DataType type, float factor, void* target, const void* source, std::size_t begin,
                         std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    store_at(target, i, narrowed(type, canonical(widened_at(type, source, i) * factor)));
  }
}

inline void keep_residual(const float* value, const float* sent, float factor, float* residual, std::size_t begin,
                          std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const float left = (load_at<float>(value, i) - load_at<float>(sent, i)) * factor;
    if (std::isfinite(left)) store_at(residual, i, left);
  }
}

}  // namespace qccl::kernels::reference
