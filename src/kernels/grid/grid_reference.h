// The specification of grid.h, one element at a time. The vector code equals it byte for byte.
//
// In float32, every operation rounded by itself to nearest even, with inverse = 1 / step:
//
//   nearest:     q = x * inverse rounded to nearest even
//   stochastic:  q = (x * (256 * inverse) rounded to nearest even + byte) >> 8, byte in 0..255 random
//   y = q * step
//
// The step of all elements: values with |x * inverse| > 16383, and those that are not finite, are sent unchanged,
// y = x. Their blocks have form 15 and carry the y of the others. Each element stands alone, however it is packed.
//
// Relative steps: step = relative * sqrt(S / n) of a bucket of n elements in double, rounded to float32 and then to
// bfloat16, at least 2^-118, at most 2^125. S is the sum of squares in float32: element i in lane i mod 32, then lanes
// l and l + 16, l + 8, ... l + 1; if that is not finite, or below 2^-80, the same in double. x * inverse is limited to
// +-largest first, largest = min(16383, floor(FLT_MAX / step)), so that no y is infinite; that changes only values
// whose step is above 2^113. A bucket with an element that is not finite has the step NaN (0x7FC0) and integers 0. A
// step that this rule cannot give decodes to NaN.
//
// Error, nearest: |x - y| <= step * (1/2 + 3 * 2^-24 * |q|), for the roundings of the inverse and of two products;
// |q| <= 16383. Stochastic: step instead of its half. -0 becomes +0.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/half.h"
#include "kernels/grid/grid.h"
#include "kernels/lanes/value.h"

namespace qccl::kernels::grid {

inline constexpr float kLargestInteger = 16383.0f;
inline constexpr float kSmallestStep = 0x1p-118f;
inline constexpr float kLargestStep = 0x1p125f;
inline constexpr float kLargestFloat = std::numeric_limits<float>::max();
inline constexpr std::uint32_t kRawForm = 15;
inline constexpr std::size_t kSquareLanes = 32;

QCCL_HD constexpr std::uint32_t form_of(std::uint32_t largest_zigzag) {
  if (largest_zigzag == 0) return 0;
  const std::uint32_t width = (bit_cast<std::uint32_t>(static_cast<float>(largest_zigzag)) >> 23) - 126;
  return width <= 13 ? width : 14;
}
inline constexpr std::array<std::uint8_t, 256> kFormOfByte = [] {
  std::array<std::uint8_t, 256> forms{};
  for (std::uint32_t largest = 0; largest < forms.size(); ++largest) {
    forms[largest] = static_cast<std::uint8_t>(form_of(largest));
  }
  return forms;
}();
QCCL_HD constexpr int width_of(std::uint32_t form) { return form < 14 ? static_cast<int>(form) : kGridWidest; }
QCCL_HD constexpr std::size_t eights(std::size_t n) { return (n + 7) / 8; }
QCCL_HD constexpr std::size_t block_bytes(std::uint32_t form, std::size_t n) {
  return form == kRawForm ? n * sizeof(float) : eights(n) * static_cast<std::size_t>(width_of(form));
}

inline constexpr std::size_t kNoForms = ~std::size_t{0};

// The bytes of the blocks of n elements with these forms, or kNoForms if no encoder writes them.
inline std::size_t blocks_bytes(const std::uint8_t* forms, std::size_t n, bool may_be_raw) {
  const std::size_t blocks = bucket_count(kGridBlock, n);
  std::size_t bytes = 0;
  bool good = blocks % 2 == 0 || forms[blocks / 2] >> 4 == 0;
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::uint32_t form = std::uint32_t{forms[i / 2]} >> i % 2 * 4 & 15u;
    good &= may_be_raw || form != kRawForm;
    bytes += block_bytes(form, std::min(kGridBlock, n - i * kGridBlock));
  }
  return good ? bytes : kNoForms;
}

// What the elements of a bucket share. A bucket's step may be NaN.
struct Line {
  float step;
  float inverse;
  float largest;  // limit of |x * inverse|
};

// For the step of all elements, or that of a bucket.
QCCL_HD inline Line line_of(float step) {
  const float most = kLargestFloat / step;
  const bool is_small = most < kLargestInteger;
  return {step, 1.0f / step, is_small ? static_cast<float>(static_cast<std::int32_t>(most)) : kLargestInteger};
}

// The stored bits of a bucket's step.
QCCL_HD inline std::uint16_t stored_step(float relative, double squares, std::size_t n) {
  if (!std::isfinite(squares)) return kCanonicalNanBits >> 16;
  const double step = double{relative} * std::sqrt(squares / static_cast<double>(n));
  const auto rounded = static_cast<float>(lesser(step, double{kLargestStep}));
  return to_bfloat16(greater(rounded, kSmallestStep)).bits;
}

// NaN for steps that no encoder writes.
QCCL_HD constexpr float read_step(std::uint16_t stored) {
  const auto step = bit_cast<float>(std::uint32_t{stored} << 16);
  return step >= kSmallestStep && step <= kLargestStep ? step : canonical_nan();
}
inline float read_step(const std::uint8_t* stored) { return read_step(reference::load_at<std::uint16_t>(stored, 0)); }

QCCL_HD constexpr std::uint32_t zigzag(std::int32_t q) {
  return static_cast<std::uint32_t>(q) << 1 ^ static_cast<std::uint32_t>(q >> 31);
}
QCCL_HD constexpr std::int32_t unzigzag(std::uint32_t z) { return static_cast<std::int32_t>(z >> 1 ^ (0u - (z & 1u))); }

// The sum of the squares of a bucket, in T.
template <class T>
T squares_in(const float* v, std::size_t n) {
  std::array<T, kSquareLanes> lanes{};
  for (std::size_t i = 0; i < n; ++i) lanes[i % kSquareLanes] += T{v[i]} * T{v[i]};
  return reference::sum_of_lanes(lanes);
}

// Whether a sum in float32 is taken: no square that matters was too small or too large for it.
QCCL_HD constexpr bool is_good_sum(float squares) { return squares >= 0x1p-80f && squares <= kLargestFloat; }

inline double squares_of(const float* v, std::size_t n) {
  const auto squares = squares_in<float>(v, n);
  return is_good_sum(squares) ? squares : squares_in<double>(v, n);
}

// For magnitudes up to 2^22: the last place of 1.5 * 2^23 is 1.
QCCL_HD constexpr std::int32_t round_to_even(float value) {
  constexpr float kShift = 0x1.8p23f;
  return bit_cast<std::int32_t>(value + kShift) - bit_cast<std::int32_t>(kShift);
}

QCCL_HD inline bool is_in_range(float x, const Line& line) { return std::fabs(x * line.inverse) <= line.largest; }
QCCL_HD constexpr float limited(float t, float largest) { return greater(-largest, lesser(largest, t)); }
// Of a finite value, which is limited first.
QCCL_HD constexpr std::int32_t integer_of(float x, const Line& line) {
  return round_to_even(limited(x * line.inverse, line.largest));
}
QCCL_HD constexpr std::int32_t integer_of(float x, const Line& line, std::uint8_t byte) {
  return (round_to_even(limited(x * line.inverse, line.largest) * 256.0f) + byte) >> 8;
}

// Packs eight bytes, of which only the lower `width` bits are set, into as many bytes as these have bits, and back, in
// three steps, in each of which neighbours become one.
class EightBits {
 public:
  explicit EightBits(int width) : width_(width) {
    for (int step = 0; step < 3; ++step) lower_[step] = ((std::uint64_t{1} << (width << step)) - 1) * kRepeat[step];
  }
  std::uint64_t close(std::uint64_t x) const {
    for (int step = 0; step < 3; ++step) {
      x = (x & lower_[step]) | (x >> (8 << step) & lower_[step]) << (width_ << step);
    }
    return x;
  }
  std::uint64_t open(std::uint64_t x) const {
    for (int step = 2; step >= 0; --step) {
      x = (x & lower_[step]) | (x >> (width_ << step) & lower_[step]) << (8 << step);
    }
    return x;
  }

 private:
  static constexpr std::uint64_t kRepeat[3] = {0x0001000100010001u, 0x0000000100000001u, 1};
  const int width_;
  std::uint64_t lower_[3];
};

}  // namespace qccl::kernels::grid
