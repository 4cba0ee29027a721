// The specification of sign.h, one element at a time.
//
//   sign  = 1 for x < 0, else 0: also for -0 and NaN
//   scale = M / n for a bucket of n elements, M the sum of |x|, or with norm_scale sqrt(S / n), S the sum of x^2
//   y     = -scale where the sign is 1, scale elsewhere
//
// M is a sum of float32: in blocks of 4096 elements, element i of a block in lane i mod 64; then lanes l and l + 32, l
// + 16, ... l + 1; then blocks in order, in double. If that is not finite although all elements are, it is computed
// again from x * 2^-20, and multiplied by 2^20 in double. S is a sum of exact squares in double, in blocks of 4096,
// lanes i mod 16. The rest is double, rounded once to float32, and limited to FLT_MAX.
//
// A bucket with an element that is not finite has the scale NaN (0x7FC00000) and decodes to NaN; so does one with a
// scale that this rule cannot give (negative, infinite, NaN). A bucket of zeros decodes to +0.
//
// Error: |x - y| <= max |x| (1 + 2^-16) + 2^-149. For a whole bucket, except for roundings of relative 2^-16,
// |x - y|^2 = |x|_2^2 - |x|_1^2 / n with the mean, the least of all scales; with the norm
// |x - y|^2 = 2 |x|_2^2 - 2 |x|_2 |x|_1 / sqrt(n).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "base/host_device.h"
#include "kernels/reduce/reduce_reference.h"
#include "kernels/sign/sign.h"

namespace qccl::kernels::reference {

inline constexpr std::size_t kSignBlock = 4096;
inline constexpr std::size_t kMagnitudeLanes = 64;
inline constexpr std::size_t kSignSquareLanes = 16;
inline constexpr float kLargestScale = std::numeric_limits<float>::max();
inline constexpr float kSignShrink = 0x1p-20f;

// The sum of term(v[i]) over a bucket.
template <class T, std::size_t kLanes, class Term>
double sign_sum(const float* v, std::size_t n, Term term) {
  double total = 0;
  for (std::size_t block = 0; block < n; block += kSignBlock) {
    const std::size_t end = std::min(n, block + kSignBlock);
    std::array<T, kLanes> lanes{};
    for (std::size_t i = block; i < end; ++i) lanes[(i - block) % kLanes] += term(v[i]);
    total += sum_of_lanes(lanes);
  }
  return total;
}

inline double magnitude_sum(const float* v, std::size_t n, float factor = 1.0f) {
  return sign_sum<float, kMagnitudeLanes>(v, n, [=](float x) { return std::fabs(x) * factor; });
}
inline double square_sum(const float* v, std::size_t n) {
  return sign_sum<double, kSignSquareLanes>(v, n, [](float x) { return double{x} * double{x}; });
}

QCCL_HD constexpr float sign_scale_of(double scale) { return static_cast<float>(lesser(scale, double{kLargestScale})); }

// From the bucket's square_sum().
QCCL_HD inline float norm_scale(double squares, std::size_t n) {
  return std::isfinite(squares) ? sign_scale_of(std::sqrt(squares / static_cast<double>(n))) : canonical_nan();
}

QCCL_HD constexpr float mean_scale_of(double magnitudes, std::size_t n) {
  return sign_scale_of(magnitudes / static_cast<double>(n));
}

// From the bucket's magnitude_sum(); reads the bucket again if that is not finite.
inline float mean_scale(double magnitudes, const float* v, std::size_t n) {
  if (!std::isfinite(magnitudes)) {
    if (!std::all_of(v, v + n, [](float x) { return std::isfinite(x); })) return canonical_nan();
    magnitudes = magnitude_sum(v, n, kSignShrink) / double{kSignShrink};
  }
  return mean_scale_of(magnitudes, n);
}

// The value of a stored scale.
QCCL_HD constexpr float read_sign_scale(std::uint32_t bits) {
  return bits <= bit_cast<std::uint32_t>(kLargestScale) ? bit_cast<float>(bits) : canonical_nan();
}
inline float read_sign_scale(const std::byte* stored) {
  std::uint32_t bits;
  std::memcpy(&bits, stored, sizeof(bits));
  return read_sign_scale(bits);
}

inline bool is_negative(const std::byte* signs, std::size_t index) {
  return (std::to_integer<unsigned>(signs[index / 8]) >> (index % 8) & 1u) != 0;
}

QCCL_HD constexpr float signed_scale(bool negative, float scale) { return negative && scale == scale ? -scale : scale; }

}  // namespace qccl::kernels::reference
