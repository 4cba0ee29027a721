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

struct Speed {
  double encode = 0;  // GB/s of float32
  double decode = 0;
  double decode_add = 0;
  double encode_of_copy = 0;  // the same as a multiple of memcpy's speed on the same data
  double decode_of_copy = 0;
  double decode_add_of_copy = 0;
};

// Measures one thread on slices of these values, alternating with memcpy of the same data. It uses `elements` of the
// values, but at least one slice; `values` must hold one. Returns medians of about `seconds` for each of the three.
inline constexpr std::size_t kElementsInCache = 64 * 1024;
Speed measure_speed(const Codec& codec, std::span<const float> values, double seconds,
                    std::size_t elements = kElementsInCache);

}  // namespace qccl::tools
