// How much a codec loses, how small it makes data and how fast it is.
#pragma once

#include <span>

#include "codec/codec.h"

namespace qccl::tools {

struct Distortion {
  double bits = 0;       // per element, headers included
  double nmse = 0;       // sum of squared errors over sum of squares
  double max_error = 0;  // over the root mean square of the values
  bool within_bound = true;
};

// Encodes the values in slices, as a collective would. `codec` null: no compression.
Distortion measure_distortion(const Codec* codec, std::span<const float> values);

struct Rate {
  double gigabytes = 0;  // of float32, a second
  double of_copy = 0;    // as a multiple of memcpy's speed on the same data
};

struct Speed {
  Rate encode;
  Rate decode;
  Rate decode_add;
};

// Measures one thread on slices of these values, alternating with memcpy of the same data. It uses `elements` of the
// values, but at least one slice; `values` must hold one. Returns medians of about `seconds` for each of the three.
inline constexpr std::size_t kElementsInCache = 64 * 1024;
Speed measure_speed(const Codec& codec, std::span<const float> values, double seconds,
                    std::size_t elements = kElementsInCache);

}  // namespace qccl::tools
