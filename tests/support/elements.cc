#include "support/elements.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace qccl::testing {
namespace {

template <class T>
T load_as(const std::byte* data, std::size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store_as(std::byte* data, std::size_t i, T value) {
  std::memcpy(data + i * sizeof(T), &value, sizeof(T));
}

// IEEE-like formats of 16 bits: sign, exponent, fraction.
struct Half {
  int fraction_bits;
  int bias;
  int exponents() const { return 1 << (15 - fraction_bits); }  // the last one encodes Inf and NaN
  int smallest_exponent() const { return 1 - bias; }
};

Half half_of(DataType type) { return type == DataType::float16 ? Half{10, 15} : Half{7, 127}; }

double half_value(Half half, std::uint16_t bits) {
  const int fraction = bits & ((1 << half.fraction_bits) - 1);
  const int exponent = (bits >> half.fraction_bits) & (half.exponents() - 1);
  double magnitude = 0;
  if (exponent == half.exponents() - 1) {
    magnitude = fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, half.smallest_exponent() - half.fraction_bits);
  } else {
    magnitude = std::ldexp((1 << half.fraction_bits) + fraction, exponent - half.bias - half.fraction_bits);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

int exponent_of(Half half, double magnitude) {
  return magnitude == 0 ? half.smallest_exponent() : std::max(std::ilogb(magnitude), half.smallest_exponent());
}

std::uint16_t half_bits(Half half, double value) {
  const auto infinity = static_cast<std::uint16_t>((half.exponents() - 1) << half.fraction_bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | (1 << (half.fraction_bits - 1)));
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
  const int exponent = exponent_of(half, magnitude);
  // In units of the last place; a carry into the next binade increments the exponent by itself.
  const auto units = static_cast<std::int64_t>(std::nearbyint(std::ldexp(magnitude, half.fraction_bits - exponent)));
  const std::int64_t bits = units + ((static_cast<std::int64_t>(exponent) + half.bias - 1) << half.fraction_bits);
  return static_cast<std::uint16_t>(sign | (bits > infinity ? infinity : bits));
}

}  // namespace

long double element(DataType type, const std::byte* data, std::size_t i) {
  switch (type) {
    case DataType::float32: return load_as<float>(data, i);
    case DataType::float64: return load_as<double>(data, i);
    case DataType::float16:
    case DataType::bfloat16: return half_value(half_of(type), load_as<std::uint16_t>(data, i));
    case DataType::int32: return load_as<std::int32_t>(data, i);
    case DataType::int64: return static_cast<long double>(load_as<std::int64_t>(data, i));
    case DataType::int8: return load_as<std::int8_t>(data, i);
    case DataType::int16: return load_as<std::int16_t>(data, i);
    case DataType::uint16: return load_as<std::uint16_t>(data, i);
    case DataType::uint32: return load_as<std::uint32_t>(data, i);
    case DataType::uint64: return static_cast<long double>(load_as<std::uint64_t>(data, i));
    case DataType::uint8:
    case DataType::boolean: return load_as<std::uint8_t>(data, i);
  }
  return 0;
}

void set_element(DataType type, std::byte* data, std::size_t i, long double value) {
  if (std::isnan(value)) value = std::numeric_limits<long double>::quiet_NaN();
  switch (type) {
    case DataType::float32: return store_as(data, i, static_cast<float>(value));
    case DataType::float64: return store_as(data, i, static_cast<double>(value));
    case DataType::float16:
    case DataType::bfloat16: return store_as(data, i, half_bits(half_of(type), static_cast<double>(value)));
    case DataType::int32: return store_as(data, i, static_cast<std::int32_t>(value));
    case DataType::int64: return store_as(data, i, static_cast<std::int64_t>(value));
    case DataType::int8: return store_as(data, i, static_cast<std::int8_t>(value));
    case DataType::int16: return store_as(data, i, static_cast<std::int16_t>(value));
    case DataType::uint16: return store_as(data, i, static_cast<std::uint16_t>(value));
    case DataType::uint32: return store_as(data, i, static_cast<std::uint32_t>(value));
    case DataType::uint64: return store_as(data, i, static_cast<std::uint64_t>(value));
    case DataType::uint8:
    case DataType::boolean: return store_as(data, i, static_cast<std::uint8_t>(value));
  }
}

long double half_spacing(DataType type, long double magnitude) {
  const Half half = half_of(type);
  return std::ldexp(1.0, exponent_of(half, static_cast<double>(magnitude)) - half.fraction_bits);
}

long double largest(DataType type) {
  switch (type) {
    case DataType::float16: return 65504;
    case DataType::bfloat16: return std::ldexp(255.0L, 120);
    case DataType::float64: return std::numeric_limits<double>::max();
    default: return std::numeric_limits<float>::max();
  }
}

}  // namespace qccl::testing
