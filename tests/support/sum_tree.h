// Along which tree an algorithm adds up each chunk of a reduction: the definitions, written apart
// from the library's plans.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/call/call_arguments.h"

namespace qccl::testing {

struct SumTree {
  std::uint64_t begin = 0;  // of the chunk, in the reduced elements
  std::uint64_t end = 0;
  int owner = 0;               // the rank that has the sum first; -1: each rank for itself (one-shot)
  std::vector<int> parent;     // by rank: to whom its partial sum goes; -1 for the owner
  std::vector<bool> raw;       // by rank: uncompressed on that way
  bool rounds_own = false;     // a rank goes on with its partial sum as the other side of a swap got it
  bool travels = false;        // the sum goes on from the owner, encoded once more
  bool stays_on_host = false;  // whoever gets the sum is on the owner's host: raw
};

// One for each chunk. Every rank's host is call.hosts.
std::vector<SumTree> sum_trees(const engine::ResolvedCall& call, int world);

}  // namespace qccl::testing
