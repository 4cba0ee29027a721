// Elements of every data type for the tests' computations, written independently of the library:
// half-precision values go through std::ldexp and std::nearbyint instead of bit tricks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "qccl/types.h"

namespace qccl::testing {

using ByteVector = std::vector<std::byte>;

inline constexpr std::array kTypes = {DataType::float32, DataType::float64, DataType::float16, DataType::bfloat16,
                                      DataType::int32,   DataType::int64,   DataType::uint8,   DataType::int8,
                                      DataType::int16,   DataType::uint16,  DataType::uint32,  DataType::uint64,
                                      DataType::boolean};
inline constexpr std::array kOps = {ReduceOp::sum,    ReduceOp::avg,     ReduceOp::min,
                                    ReduceOp::max,    ReduceOp::prod,    ReduceOp::bit_and,
                                    ReduceOp::bit_or, ReduceOp::bit_xor, ReduceOp::premul_sum};

// The exact value of element `i`. 64-bit integers fit the 64-bit mantissa of a long double.
long double element(DataType type, const std::byte* data, std::size_t i);
inline long double element(DataType type, const ByteVector& data, std::size_t i) {
  return element(type, data.data(), i);
}
// Writes `value` rounded to nearest even (floats) or unchanged (integers). NaN is written as the quiet
// NaN without payload.
void set_element(DataType type, std::byte* data, std::size_t i, long double value);

// Distance between adjacent values of the type around `magnitude`, for floats of 16 bits.
long double half_spacing(DataType type, long double magnitude);
// Largest finite value.
long double largest(DataType type);

// Gives the same numbers everywhere, unlike the standard distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }
  // Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Sum of uniforms: bell-shaped, variance 1.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace qccl::testing
