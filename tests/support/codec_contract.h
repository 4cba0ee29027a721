// What every codec promises (codec/codec.h), held against any one: sizes, bounds, what is not
// finite, damaged payloads, independence of slices and instruction sets. A new codec is in the list
// and thereby in the tests that use this.
#pragma once

#include <string>
#include <vector>

#include "codec/codec.h"

namespace qccl::testing {

// Every codec of the list: with its usual settings, and with each setting at the ends of what is
// allowed, the others as usual.
std::vector<Compression> usual_compressions();
std::vector<Compression> extreme_compressions();

// The first broken promise in words, or "". Looks at every instruction set of this machine.
std::string broken_promise(const Codec& codec);

}  // namespace qccl::testing
