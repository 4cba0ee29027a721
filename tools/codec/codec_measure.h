// The data that codecs are measured on, and how much a codec loses, how small it makes data and how fast it is.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/codec.h"

namespace qccl::tools {

struct DataSet {
  std::string name;
  std::vector<float> values;
};

// "gauss", "laplace", "t3" (Student's t with 3 degrees of freedom), "outliers" (Gauss, 1 % of the
// elements 30 times as large), all of scale 1. The numbers are the same on every machine, except
// for the last bits of its math library.
const std::vector<std::string_view>& synthetic_names();
DataSet synthetic_data(std::string_view name, std::size_t count, std::uint64_t seed);

// Reads a file of raw little-endian float32. InvalidArgument if it can't be read, is empty, ends
// inside a float, or has values that are not finite.
Result<DataSet> read_data(const std::string& path);

struct Distortion {
  double bits = 0;       // per element, headers included
  double nmse = 0;       // sum of squared errors over sum of squares
  double max_error = 0;  // over the root mean square of the values
  bool within_bound = true;
};

// Encodes the values in slices, as a collective would. `codec` null: no compression.
Distortion measure_distortion(const Codec* codec, std::span<const float> values);

// Measures a sum over hops + 1 ranks that encodes the partial sums at each hop, as a ring does. Each rank has the
// values with random signs of its own, so that the ranks are independent and alike. The bits are those of a hop in the
// mean; bounds are not checked. hops > 0.
Distortion measure_sum_distortion(const Codec* codec, std::span<const float> values, int hops);

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
