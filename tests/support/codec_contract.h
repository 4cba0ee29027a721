// Checks that a codec keeps the promises of codec/codec.h: sizes, bounds, values that are not finite,
// damaged payloads, independence of slices and instruction sets. A new codec in the list is
// automatically part of the tests that use this.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.h"

namespace qccl {

// Names a test's parameter in the output of GoogleTest, which finds it beside the type.
inline void PrintTo(const Compression& compression, std::ostream* out) { *out << compression.to_string(); }

}  // namespace qccl

namespace qccl::testing {

// Every codec of the list with its default settings; also with those of its examples, and with each setting at the
// ends of its valid range, the other settings at their defaults.
std::vector<Compression> default_compressions();
std::vector<Compression> extreme_compressions();

// The first element of a tensor's one encoding that is off by more than the codec's bound for its bucket and `rounding`
// of the bucket's magnitude, in words; "" if there is none. What is not finite must not have become a number.
std::string beyond_bound(const Codec& codec, std::span<const float> sent, std::span<const float> received,
                         double rounding = 0);

// The first broken promise in words, or "". Checks every instruction set of this machine.
std::string broken_promise(const Codec& codec);

}  // namespace qccl::testing
