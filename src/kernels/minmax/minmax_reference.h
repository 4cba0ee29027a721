// The specification of max-min quantization, one element at a time. The vector code equals it byte for byte and calls
// it for buckets that vectors cannot handle.
//
// With D = 2^bits - 1, all in float32, every operation rounded by itself to nearest even:
//
//   unit = maximum / D - minimum / D, at most FLT_MAX (one bit can overflow), at least 2^-126
//          (so that 1 / unit is finite)
//   steps = min((x - minimum) * (1 / unit), D)
//   code = floor(steps + 0.5), or, rounding stochastically by a random byte:
//   code = (256 * steps rounded to nearest even + byte) >> 8
//   y    = minimum + code * unit
//
// A minimum of -0 counts as +0. A bucket with an element that is not finite has the header
// {NaN, NaN}, zero codes, and decodes to NaN; so does any other header that is not finite.
//
// If |minimum| or D * unit is above 2^125, x - minimum or code * unit could overflow. Such a bucket is `wide`: the same
// rule at a quarter of the scale, with minimum / 4, max(unit / 4, 2^-126) and x / 4, then y = 4 * clamp(y / 4,
// +-FLT_MAX / 4). Both sides recognize it by the header alone.
//
// Error, nearest: |x - y| <= unit / 2 + 6 ulp(max |x|), ulp of the largest magnitude in the bucket. In such ulps, at
// most: 1 for x - minimum, 2 for 1 / unit (half an ulp of it, times the range of up to 2 max |x|), 1 for the product,
// and 1 + 1/2 for the decoder's product and sum. Adding 0.5 and the floor are exact except for products below 0.5.
// Clamping to D costs no more: it happens only if unit came out too small, by at most 2 / D ulp. Ties of zero range or
// denormals are covered by unit / 2 with unit = 2^-126.
// Stochastic: |x - y| <= unit + 6 ulp(max |x|), and the mean of y over the bytes is within unit / 512 + 6 ulp of x.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/half.h"
#include "base/host_device.h"

namespace qccl::kernels::reference {

struct BucketHeader {
  float unit = 0;
  float minimum = 0;
};
static_assert(sizeof(BucketHeader) == 8);

inline constexpr float kSmallestUnit = 0x1p-126f;
inline constexpr float kWideFrom = 0x1p125f;
inline constexpr float kLargest = std::numeric_limits<float>::max();

QCCL_HD constexpr float largest_code(int bits) { return static_cast<float>((1 << bits) - 1); }

enum class BucketKind : std::uint8_t { normal, wide, invalid };

QCCL_HD inline BucketKind kind_of(BucketHeader header, float levels) {
  if (!std::isfinite(header.unit) || !std::isfinite(header.minimum)) return BucketKind::invalid;
  const bool narrow = std::fabs(header.minimum) <= kWideFrom && std::fabs(header.unit * levels) <= kWideFrom;
  return narrow ? BucketKind::normal : BucketKind::wide;
}

inline bool all_finite(const float* bucket, std::size_t n) {
  bool finite = true;
  for (std::size_t i = 0; i < n; ++i) finite = std::isfinite(bucket[i]) && finite;
  return finite;
}

// The header of a bucket with these extremes, all elements finite.
QCCL_HD constexpr BucketHeader make_header(float minimum, float maximum, float levels) {
  const float unit = maximum / levels - minimum / levels;
  return {greater(lesser(unit, kLargest), kSmallestUnit), minimum + 0.0f};
}

QCCL_HD constexpr BucketHeader invalid_header() { return {canonical_nan(), canonical_nan()}; }

// The values used for a bucket's elements: the header, or a quarter of it.
struct Quantizer {
  BucketKind kind = BucketKind::normal;
  float levels = 0;
  float minimum = 0;
  float unit = 0;
  float inverse = 0;
};

QCCL_HD inline Quantizer make_quantizer(BucketHeader header, float levels) {
  Quantizer quantizer{kind_of(header, levels), levels, header.minimum, header.unit};
  if (quantizer.kind == BucketKind::wide) {
    quantizer.minimum *= 0.25f;
    quantizer.unit = greater(quantizer.unit * 0.25f, kSmallestUnit);
  }
  quantizer.inverse = 1.0f / quantizer.unit;
  return quantizer;
}

// For a bucket that is not invalid.
QCCL_HD constexpr float steps_of(const Quantizer& q, float x) {
  if (q.kind == BucketKind::wide) x *= 0.25f;
  return lesser((x - q.minimum) * q.inverse, q.levels);
}

QCCL_HD constexpr std::uint32_t encode_element(const Quantizer& q, float x) {
  if (q.kind == BucketKind::invalid) return 0;
  return static_cast<std::uint32_t>(steps_of(q, x) + 0.5f);
}

QCCL_HD constexpr std::uint32_t encode_element(const Quantizer& q, float x, std::uint8_t byte) {
  if (q.kind == BucketKind::invalid) return 0;
  constexpr float kWhole = 0x1p23f;  // from here on a float is a whole number
  const float fine = steps_of(q, x) * 256.0f;
  const float rounded = fine < kWhole ? (fine + kWhole) - kWhole : fine;
  return (static_cast<std::uint32_t>(rounded) + byte) >> 8;
}

QCCL_HD constexpr float decode_element(const Quantizer& q, std::uint32_t code) {
  if (q.kind == BucketKind::invalid) return canonical_nan();
  const float y = q.minimum + static_cast<float>(code) * q.unit;
  if (q.kind == BucketKind::normal) return y;
  return clamped(y, -kLargest / 4, kLargest / 4) * 4.0f;
}

}  // namespace qccl::kernels::reference
