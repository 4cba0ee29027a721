// Which algorithm a call takes if nobody asks for one: a pure function of what all ranks know alike.
// Every algorithm that may be taken is priced (cost.h), at the next smaller size of which there are
// four to each doubling; the cheapest is taken.
//
// Sums in rank order, encoded twice at most, are worth something: another algorithm must save a
// tenth. Never taken for sums are those that would round partial sums at every hop: compressed, or
// of 16-bit floats, ring, tree, recursive doubling and binomial. Hierarchical rounds once a host; it is
// taken where hosts have several ranks, or a broadcast has several hosts. An all_reduce in one lane
// (one-shot, recursive doubling) is taken up to 1 MiB, compressed one-shot sums only where there is no SRA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cost/cost.h"
#include "qccl/types.h"

namespace qccl::plan {

// A call as far as the choice looks at it.
struct Question {
  Collective collective = Collective::all_reduce;
  std::uint64_t elements = 0;  // where ranks have pieces: of all together
  DataType type = DataType::float32;
  bool compressed = false;
  double encoded_bytes = 4;          // of an element on the wire
  std::uint32_t bucket_size = 1;     // 1 uncompressed
  std::uint64_t slice_elements = 1;  // codec/slicing.h
};

struct Candidate {
  Algorithm algorithm;
  Price price;
  std::string_view obstacle;  // why it may not be taken, in words; empty if it may
};

struct Choice {
  Algorithm algorithm;
  std::vector<Candidate> candidates;  // all that the collective has, priced at the question's own size
  std::string reason;                 // in words
};

// `hosts` of each rank.
Algorithm choose(const Question& question, const std::vector<int>& hosts, const Links& links);
// The same and why.
Choice explain(const Question& question, const std::vector<int>& hosts, const Links& links);

// Sizes that are chosen alike have the same number; it grows with the elements.
int size_class(std::uint64_t elements);
// The smallest number of elements of the class.
std::uint64_t least_of_class(int size_class);

}  // namespace qccl::plan
