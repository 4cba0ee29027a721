// Inputs of collectives: ordinary and hostile, the same for the same seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/elements.h"

namespace qccl::testing {

enum class Pattern {
  normal,       // bell-shaped around 0
  huge,         // 3e38 of either sign (or near the type's largest)
  tiny,         // 1e-9
  subnormal,    // 1e-40
  with_nan,     // normal, one NaN on one rank
  with_inf,     // normal, one Inf on one rank
  opposed_inf,  // Inf and -Inf at one place on different ranks
  negative,     // all below zero
  constant,     // one value, the same everywhere
  outlier,      // 1e-3, one element of 1e6 (float16: 1e4)
  minus_zero,   // only -0
  zeros,        // -0 and +0 mixed
  ladder,       // powers of two of many sizes
  whole,        // -2, -1, 0, 1, 2: sums and products of ten are exact in every order and type
};

inline const std::vector<Pattern> kPatterns = {
    Pattern::normal,     Pattern::huge,        Pattern::tiny,     Pattern::subnormal, Pattern::with_nan,
    Pattern::with_inf,   Pattern::opposed_inf, Pattern::negative, Pattern::constant,  Pattern::outlier,
    Pattern::minus_zero, Pattern::zeros,       Pattern::ladder};

const char* to_string(Pattern pattern);

// `count` elements for each of `world` ranks. Integers are random over all values, with any pattern.
std::vector<ByteVector> make_inputs(Pattern pattern, DataType type, std::uint64_t count, int world, std::uint64_t seed);

}  // namespace qccl::testing
