// Addition of elements of each type: 16-bit floats in float32, integers with wrap-around, booleans by or.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/half.h"
#include "qccl/types.h"

namespace qccl::sparse {

struct Boolean {
  std::uint8_t byte;
};

// Sum is the type in which elements are added; finished() is the last step of a sum before it is narrowed.
template <class T>
struct Arithmetic {
  using Sum = T;
  static Sum widen(T x) { return x; }
  static T narrow(Sum x) { return x; }
  static Sum add(Sum a, Sum b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
  // A zero is +0, whether or not other ranks' zeros were added to it; NaNs are canonical.
  static Sum finished(Sum x, int divisor) {
    if constexpr (std::is_floating_point_v<T>) {
      if (x != x) return static_cast<T>(canonical_nan());
      return x / static_cast<T>(divisor) + T{0};
    } else {
      return x;
    }
  }
};

template <class Half, Half (*Round)(float)>
struct HalfArithmetic : Arithmetic<float> {
  static float widen(Half x) { return to_float(x); }
  static Half narrow(float x) { return Round(x); }
};
template <>
struct Arithmetic<float16> : HalfArithmetic<float16, to_float16> {};
template <>
struct Arithmetic<bfloat16> : HalfArithmetic<bfloat16, to_bfloat16> {};

template <>
struct Arithmetic<Boolean> {
  using Sum = Boolean;
  static Sum widen(Boolean x) { return x; }
  static Boolean narrow(Sum x) { return x; }
  static Sum add(Sum a, Sum b) { return {static_cast<std::uint8_t>(a.byte | b.byte)}; }
  static Sum finished(Sum x, int) { return {static_cast<std::uint8_t>(x.byte != 0 ? 1 : 0)}; }
};

// Calls function.template operator()<T>() with the C++ type of `type`.
template <class Function>
auto with_type(DataType type, const Function& function) {
  switch (type) {
    case DataType::float32: return function.template operator()<float>();
    case DataType::float64: return function.template operator()<double>();
    case DataType::float16: return function.template operator()<float16>();
    case DataType::bfloat16: return function.template operator()<bfloat16>();
    case DataType::int32: return function.template operator()<std::int32_t>();
    case DataType::int64: return function.template operator()<std::int64_t>();
    case DataType::uint8: return function.template operator()<std::uint8_t>();
    case DataType::int8: return function.template operator()<std::int8_t>();
    case DataType::int16: return function.template operator()<std::int16_t>();
    case DataType::uint16: return function.template operator()<std::uint16_t>();
    case DataType::uint32: return function.template operator()<std::uint32_t>();
    case DataType::uint64: return function.template operator()<std::uint64_t>();
    case DataType::boolean: break;
  }
  return function.template operator()<Boolean>();
}

// The type in which sums are kept.
constexpr DataType sum_type(DataType type) {
  return type == DataType::float16 || type == DataType::bfloat16 ? DataType::float32 : type;
}

}  // namespace qccl::sparse
