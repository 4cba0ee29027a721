#include "kernels/reduce.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace qccl::kernels {
namespace {

template <class T>
T load_at(const void* from, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store_at(void* to, std::size_t i, T value) {
  std::memcpy(static_cast<char*>(to) + i * sizeof(T), &value, sizeof(T));
}

template <class T>
T canonical(T value) {
  return value != value ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <class T>
T apply(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg: return canonical(a + b);
      case ReduceOp::prod: return canonical(a * b);
      case ReduceOp::min:
        if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
        return a < b || (a == b && std::signbit(a)) ? a : b;
      case ReduceOp::max:
        if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
        return a > b || (a == b && !std::signbit(a)) ? a : b;
    }
  } else {
    using U = std::make_unsigned_t<T>;
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg: return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      case ReduceOp::prod: return static_cast<T>(static_cast<U>(static_cast<U>(a) * static_cast<U>(b)));
      case ReduceOp::min: return a < b ? a : b;
      case ReduceOp::max: return a > b ? a : b;
    }
  }
  return a;
}

template <class T>
void reduce_typed(ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) store_at(target, i, apply(op, load_at<T>(a, i), load_at<T>(b, i)));
}

float widen_one(DataType type, const void* source, std::size_t i) {
  const auto bits = load_at<std::uint16_t>(source, i);
  return type == DataType::float16 ? to_float(float16{bits}) : to_float(bfloat16{bits});
}

}  // namespace

void reduce(DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  switch (type) {
    case DataType::float32: return reduce_typed<float>(op, target, a, b, n);
    case DataType::float64: return reduce_typed<double>(op, target, a, b, n);
    case DataType::int32: return reduce_typed<std::int32_t>(op, target, a, b, n);
    case DataType::int64: return reduce_typed<std::int64_t>(op, target, a, b, n);
    default: return reduce_typed<std::uint8_t>(op, target, a, b, n);
  }
}

void widen(DataType type, float* target, const void* source, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) target[i] = widen_one(type, source, i);
}

void reduce_widened(DataType type, ReduceOp op, float* target, const float* a, const void* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) target[i] = apply(op, a[i], widen_one(type, b, i));
}

void narrow(DataType type, void* target, const float* source, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    store_at(target, i, type == DataType::float16 ? to_float16(source[i]).bits : to_bfloat16(source[i]).bits);
  }
}

void divide(DataType type, void* data, double divisor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (type == DataType::float32) {
      store_at(data, i, canonical(load_at<float>(data, i) / static_cast<float>(divisor)));
    } else {
      store_at(data, i, canonical(load_at<double>(data, i) / divisor));
    }
  }
}

const char* simd_target() { return "scalar"; }

}  // namespace qccl::kernels
