// The specification of onebit.h, one element at a time. The vector code equals it byte for byte and calls it for the
// elements left over at an array's end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/onebit/onebit.h"
#include "kernels/reduce/reduce_reference.h"

namespace qccl::kernels::reference {

inline constexpr std::size_t kSquareLanes = 16;
inline constexpr std::size_t kSquareBlock = 4096;

// The sum of squares of a block.
struct SquareSum {
  alignas(64) std::array<double, kSquareLanes> lanes{};

  // Element `index` of the block.
  void add(std::size_t index, float value) { lanes[index % kSquareLanes] += double{value} * double{value}; }
  double total() const { return sum_of_lanes(lanes); }
};

// The bit of the element in its byte.
constexpr unsigned sign_bit(std::size_t index) { return 0x80u >> (index % kOnebitGroup); }

inline bool is_positive(const std::byte* signs, std::size_t index) {
  return (std::to_integer<unsigned>(signs[index / kOnebitGroup]) & sign_bit(index)) != 0;
}

// Element 0 of a group clears its byte first.
inline void put_sign(std::byte* signs, std::size_t index, float value) {
  std::byte& byte = signs[index / kOnebitGroup];
  if (index % kOnebitGroup == 0) byte = std::byte{0};
  if (!(value < 0)) byte |= static_cast<std::byte>(sign_bit(index));
}

inline float element(const SignedPart& part, std::size_t index) {
  return is_positive(part.signs, index) ? part.scale : -part.scale;
}

// The functions of the same names in onebit.h for elements [begin, end), both multiples of 8. `sum` belongs to the
// block, which begins at or before `begin`.
inline void onebit_pack(const float* input, std::size_t inputs, float* error, std::size_t begin, std::size_t end,
                        std::byte* signs, SquareSum& sum) {
  for (std::size_t i = begin; i < end; ++i) {
    const float addend = i < inputs ? load_at<float>(input, i) : 0.0f;
    const float value = canonical(addend + load_at<float>(error, i));
    store_at(error, i, value);
    put_sign(signs, i, value);
    sum.add(i % kSquareBlock, value);
  }
}

inline void onebit_subtract(float scale, float* values, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const float value = load_at<float>(values, i);
    store_at(values, i, canonical(value - (value < 0 ? -scale : scale)));
  }
}

inline void onebit_sum(const SignedPart* parts, std::size_t part_count, float* error, std::size_t begin,
                       std::size_t end, std::byte* signs, SquareSum& sum) {
  for (std::size_t i = begin; i < end; ++i) {
    float value = element(parts[0], i);
    for (std::size_t part = 1; part < part_count; ++part) value += element(parts[part], i);
    value = canonical(value + load_at<float>(error, i));
    store_at(error, i, value);
    put_sign(signs, i, value);
    sum.add(i % kSquareBlock, value);
  }
}

inline void onebit_expand(const SignedPart& part, float* target, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) store_at(target, i, canonical(element(part, i)));
}

}  // namespace qccl::kernels::reference
