// The tree along which an algorithm sums each chunk of a reduction: the definitions, written
// independently of the library's plans.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/call/call_arguments.h"

namespace qccl::testing {

struct SumTree {
  std::uint64_t begin = 0;  // of the chunk, in the reduced elements
  std::uint64_t end = 0;
  int owner = 0;               // the rank that has the sum first; -1: each rank for itself (one-shot)
  std::vector<int> parent;     // by rank: the receiver of its partial sum; -1 for the owner
  std::vector<bool> raw;       // by rank: whether it sends its partial sum uncompressed
  bool rounds_own = false;     // a rank continues with its partial sum as its peer in a swap received it
  bool travels = false;        // the owner sends the sum on, encoded once more
  bool stays_on_host = false;  // all receivers of the sum are on the owner's host: raw
};

// One tree for each chunk. call.hosts gives every rank's host.
std::vector<SumTree> sum_trees(const engine::ResolvedCall& call, int world);

}  // namespace qccl::testing
