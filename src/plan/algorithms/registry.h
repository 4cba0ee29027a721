// The list of algorithms: the only source for plans, the choice of algorithm, the checker, `qccl plan` and the tests.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "plan/algorithms/builder.h"
#include "plan/algorithms/critical_path.h"
#include "plan/plan.h"

namespace qccl::plan {

// Adds the lanes of the builder's rank.
using BuildFunction = void(Builder& builder);

// What an algorithm does for one collective.
struct CollectiveBuilder {
  Collective collective;
  BuildFunction* build;
  // Sums are rank 0 + rank 1 + ..., in no other order. The choice prefers it: others must save a tenth. A collective
  // without sums has it where the choice should prefer the algorithm.
  bool adds_in_rank_order = false;
  // Taken by name only: it has not been measured against the others.
  bool only_on_request = false;
  // An all_reduce whose chunk c rank c owns, and in which owners of more move more: chunks follow Request::shares.
  bool uses_shares = false;
};

// One algorithm. Lives in the file named after it.
struct AlgorithmEntry {
  Algorithm algorithm;    // its number, which ranks exchange: never taken over by another
  std::string_view name;  // as users write it
  std::span<const CollectiveBuilder> collectives;
  // For one slice of the request's collective. Assumes at least two ranks, and that all chunks have elements.
  CriticalPath (*critical_path)(const PathFinder& paths);
  // Into how many chunks an all_reduce, reduce or broadcast divides its data; null: it does not.
  int (*chunk_count)(const Request& request) = nullptr;
  // Compressed sums, and sums of 16-bit floats, are rounded at every hop, so they are chosen only on request.
  bool rounds_at_every_hop = false;
  // The plan depends on the hosts of the ranks.
  bool uses_hosts = false;
  // An all_reduce in mapped buffers may read inputs where they lie: inside a host one rank alone reads each slice, and
  // overwrites it only with a sum that every result follows from.
  bool reads_mapped_buffers = false;
  // While data goes from rank to rank, each rank has other data to send: a latency costs time only where a line would
  // be idle meanwhile.
  bool hides_latency = false;
  // Compressed calls take this algorithm instead.
  std::optional<Algorithm> compressed_as = std::nullopt;
};

// In the order in which they are tried and shown to users.
std::span<const AlgorithmEntry* const> algorithm_list();
// The algorithm must not be automatic.
const AlgorithmEntry& entry_of(Algorithm algorithm);
// Null if the collective does not have the algorithm.
const CollectiveBuilder* builder_of(Collective collective, Algorithm algorithm);
// CollectiveBuilder::adds_in_rank_order; false if the collective does not have the algorithm.
bool adds_in_rank_order(Collective collective, Algorithm algorithm);

// The chunks of algorithms whose chunks have no owners: Request::lanes, at most one for each slice of an all_reduce.
int lanes_of_all_reduce(const Request& request);

// Each chunk of a sum is complete on one rank first.
inline bool has_owners(const AlgorithmEntry& entry) {
  return entry.chunk_count != nullptr && entry.chunk_count != lanes_of_all_reduce;
}

// The number of chunks into which the request divides an all_reduce, reduce or broadcast.
int chunk_count(const Request& request);

}  // namespace qccl::plan
