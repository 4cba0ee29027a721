// Chooses the algorithm of a call that requests none: a pure function of values that are equal on all ranks. Every
// algorithm that may be chosen is priced (cost.h) at the next smaller size class, four of which make a doubling; the
// cheapest is chosen.
//
// Sums in rank order that are encoded at most twice have a bonus: another algorithm must save a tenth. Algorithms that
// round partial sums at every hop are never chosen for sums: ring, tree, recursive doubling and binomial, if compressed
// or of 16-bit floats. Hierarchical rounds once per host; it is a candidate if hosts have several ranks, or if a
// broadcast has several hosts. An all_reduce in one lane (one-shot, recursive doubling) is chosen up to 1 MiB;
// compressed one-shot sums only if SRA is not available.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cost/cost.h"
#include "qccl/types.h"

namespace qccl::plan {

// The properties of a call that the choice depends on.
struct SelectionKey {
  Collective collective = Collective::all_reduce;
  std::uint64_t elements = 0;  // if ranks have pieces: of all together
  DataType type = DataType::float32;
  bool compressed = false;
  double encoded_bytes = 4;          // of an element on the wire
  std::uint32_t bucket_size = 1;     // 1 uncompressed
  std::uint64_t slice_elements = 1;  // codec/geometry.h
};

struct Candidate {
  Algorithm algorithm;
  CostEstimate price;
  std::string_view unsupported_reason;  // why it may not be chosen, in words; empty if it may
};

struct Choice {
  Algorithm algorithm;
  std::vector<Candidate> candidates;  // all of the collective's, priced at the key's own size
  std::string reason;                 // in words
};

// `hosts`: the host of each rank.
Algorithm choose(const SelectionKey& key, const std::vector<int>& hosts, const MachineModel& links);
// The same with the reason.
Choice explain(const SelectionKey& key, const std::vector<int>& hosts, const MachineModel& links);

// Sizes with the same number get the same choice; it grows with the elements.
int size_class(std::uint64_t elements);
// The smallest number of elements of the class.
std::uint64_t least_of_class(int size_class);

}  // namespace qccl::plan
