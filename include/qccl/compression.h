// How a collective encodes the floats it sends, as a value: comparable, printable, and written the same way in flags,
// Python and QCCL_COMPRESSION.
//
// It holds the settings of any codec of the library as numbers. `qccl codec list` names the codecs, their settings and
// the allowed values; docs/codecs.md says what each codec is good for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "qccl/types.h"

namespace qccl {

// A codec with its settings. A value; the functions below make one.
struct Compression {
  // The most settings of any codec.
  static constexpr std::size_t kMaxSettings = 6;

  std::uint32_t codec = 0;  // its index in the library's list; 0: none
  // In the order of the codec's list of settings. A word is stored as its index among the allowed words; unused entries
  // are 0.
  std::array<double, kMaxSettings> settings{};

  // Whether elements are sent at their own size.
  bool is_none() const { return codec == 0; }
  // "none", "cast", "minmax", ...
  std::string_view name() const;
  // A setting as a number. Throws Error(invalid_argument) if the codec has no setting of that name.
  double setting(std::string_view key) const;

  friend bool operator==(const Compression&, const Compression&) = default;

  // Reads "none", "cast:type=bf16", "minmax:bits=4,bucket_size=1024"; keys may be left out.
  // Throws Error(invalid_argument) that lists what is allowed.
  static Compression parse(std::string_view spec);
  // The text that parse() reads back to an equal value.
  std::string to_string() const;
};

// Stochastic: rounds up or down at random, so that the mean is right; stratified over ranks, so that errors cancel in a
// sum.
enum class Rounding : std::uint8_t { nearest, stochastic };

// Settings of minmax().
struct MinmaxOptions {
  int bits = 8;                      // 1..32; 32: unchanged
  std::uint32_t bucket_size = 1024;  // elements that share one scale, 1..65536
  Rounding rounding = Rounding::nearest;
};

// Settings of block_int().
struct IntOptions {
  int bits = 8;               // 2..8
  std::uint32_t block = 128;  // elements that share one scale, 1..65536
  Rounding rounding = Rounding::nearest;
};

// Settings of topk().
struct TopkOptions {
  double density = 0.01;     // share of the elements that is sent, 0.0002..0.5
  bool int8_values = false;  // else float32
};

// Settings of sign().
struct SignOptions {
  std::uint32_t bucket_size = 256;  // elements that share one scale, 1..65536
  bool norm_scale = false;          // true: the scale is the root mean square, as in DeepSpeed; else mean magnitude
};

// Settings of h4().
struct H4Options {
  int bits = 4;          // 2..4
  bool unbiased = true;  // true: unbiased over its random signs; false: least error
};

// Settings of grid().
struct GridOptions {
  double bound = 0;             // the largest error of every finite element, 1e-30..1e30; 0: `relative` says the step
  double relative = 0.5;        // the step over the root mean square of a bucket, 0.03125..4
  std::uint32_t bucket = 4096;  // elements that share a step, with `relative`: 256, 512, .. 65536
  bool entropy = false;         // an entropy code in place of widths by block: fewer bytes, a tenth of the speed
  Rounding rounding = Rounding::nearest;
};

// No compression: every element at its own size.
constexpr Compression none() { return {}; }
// QNCCL's max-min quantizer; error at most unit/2 + 6 ulp(max |x|) where unit = range/(2^bits - 1), with stochastic
// rounding unit + 6 ulp(max |x|). Throws Error(invalid_argument) for bits or bucket sizes outside the ranges above.
Compression minmax(MinmaxOptions options = {});
// Integers with one scale per block, zero exact; error at most about scale/2 where scale = max |x| / (2^(bits - 1) - 1)
// or up to 1 % more, with stochastic rounding at most scale. Throws Error(invalid_argument) for bits or blocks outside
// the ranges above.
Compression block_int(IntOptions options = {});
// bfloat16 or float16 on the wire, fp32 accumulation.
// Throws Error(invalid_argument) for any other type.
Compression cast(DataType wire = DataType::bfloat16);
// Every bit arrives, NaN payloads included, in fewer bytes if exponents are alike: normally distributed data takes 0.67
// of the bytes of bfloat16, 0.83 of float32, 0.85 of float16. For collectives that only move data (all_gather,
// broadcast, all_to_all), and for exact sums.
Compression lossless();
// The largest elements of each 4096 with their indices; all others decode as 0. Training with it needs error feedback.
// Throws Error(invalid_argument) for densities outside the range above.
Compression topk(TopkOptions options = {});
// The sign of each element, 1 bit, and a scale for each bucket. Training with it needs error feedback. Throws
// Error(invalid_argument) for bucket sizes outside the range above.
Compression sign(SignOptions options = {});
// A randomized Hadamard transform of each 256 elements and 4, 8 or 16 levels: for any data, nearly the error of
// normally distributed data. Throws Error(invalid_argument) for bits outside the range above.
Compression h4(H4Options options = {});

// Multiples of a step, in as many bits as each 32 of them need. The step keeps `bound`, or is `relative` times the root
// mean square of a bucket. Throws Error(invalid_argument) for values outside the ranges above, and for another
// `relative` or `bucket` together with `bound`.
Compression grid(GridOptions options = {});

// None, block_int() or minmax() of these bits: whichever a group's own calls show to be fastest at their size. Some
// calls try each, then the ranks compare their times, and repeat this from time to time. The error is at most that of
// the less exact of the two codecs. Throws Error(invalid_argument) for bits other than 2..8.
Compression automatic(int bits = 8);

// What it costs to encode values once, in bytes and in error. The sums are over the elements that were encoded.
struct EncodingCost {
  std::uint64_t elements = 0;  // that were encoded
  std::uint64_t bytes = 0;     // of their encoding, headers included
  double squares = 0;          // sum of the values' squares
  double error_squares = 0;    // of the differences between a value and what it decodes to
  double decoded_squares = 0;  // of what the values decode to
  double products = 0;         // of each value and what it decodes to

  // Bits an element.
  double bits() const { return elements == 0 ? 0 : 8 * static_cast<double>(bytes) / static_cast<double>(elements); }
  // The error's squares over the values': 0 if there is no error, infinite if only the values are 0.
  double nmse() const { return error_squares == 0 ? 0 : error_squares / squares; }
  // Between the values and what they decode to; 0 if one of them is all 0.
  double cosine() const;
};

// Encodes and decodes slices of `values`, as calls do; `most`: at most about so many elements, in slices that are
// spread evenly. Sums are NaN where values are. Throws Error(invalid_argument) for automatic(), which is no encoding.
EncodingCost measure_encoding(const Compression& compression, std::span<const float> values,
                              std::uint64_t most = UINT64_MAX);

}  // namespace qccl
