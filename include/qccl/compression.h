// What a reduction sends instead of whole floats, as a value: comparable, printable,
// and the same as text in flags, Python and QCCL_COMPRESSION.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "qccl/types.h"

namespace qccl {

struct Compression {
  enum class Kind : std::uint8_t { none, cast, minmax };

  Kind kind = Kind::none;
  int bits = 32;                       // minmax: 1..8, 16 or 32
  std::uint32_t bucket_size = 1024;    // minmax: elements that share one scale, 1..65536
  DataType wire = DataType::bfloat16;  // cast: bfloat16 or float16

  friend bool operator==(const Compression&, const Compression&) = default;

  // Reads "none", "cast:type=bf16", "minmax:bits=4,bucket_size=1024"; keys may be left out.
  // Throws Error(invalid_argument) that lists what is allowed.
  static Compression parse(std::string_view spec);

  // The text that parse() reads back to an equal value.
  std::string to_string() const;
};

struct MinmaxOptions {
  int bits = 8;
  std::uint32_t bucket_size = 1024;
};

// As it is: 32 (or 16) bits an element.
constexpr Compression none() { return {}; }

// QNCCL's max-min quantizer; error at most unit/2 + 6 ulp(max |x|) where unit = range/(2^bits - 1).
// Throws Error(invalid_argument) for bits or bucket sizes that do not exist.
Compression minmax(MinmaxOptions options = {});

// bfloat16 or float16 on the wire, fp32 accumulation.
// Throws Error(invalid_argument) for any other type.
Compression cast(DataType wire = DataType::bfloat16);

}  // namespace qccl
