// Which algorithm a call takes if nobody asks for one: a pure function of what all ranks know alike.
#pragma once

#include <cstdint>
#include <string>

#include "qccl/types.h"

namespace qccl::plan {

// `bytes` of input as the public call counts them: one-shot where latency decides, SRA where bytes do.
Algorithm choose(Collective collective, std::uint64_t bytes, int world, bool compressed);
// Why, in words.
std::string reason(Collective collective, std::uint64_t bytes, int world, bool compressed);

}  // namespace qccl::plan
