// Calls as the user wrote them, and the choice of their codec and algorithm, by pure functions of what all ranks know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>

#include "base/options.h"
#include "base/pooled.h"
#include "base/result.h"
#include "choice/algorithm_table.h"
#include "choice/compression_trial.h"
#include "engine/call/executable_plan.h"
#include "qccl/communicator.h"
#include "qccl/types.h"

namespace qccl::comm {

// Each rank's count, or that of all ranks together in the v forms.
inline std::uint64_t total_count(const CollectiveCall& call) {
  if (!call.counts) return call.count;
  const auto sum = [](Counts counts) { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); };
  return sum(*call.counts) + sum(call.receives);
}
inline const void* input_of(const CollectiveCall& call) {
  return call.collective == Collective::broadcast ? call.output : call.input;
}
// Ranks do not know each other's counts.
inline bool has_private_counts(const CollectiveCall& call) {
  return call.collective == Collective::all_to_all && call.counts.has_value();
}

// Settings of a group, for calls without their own.
struct GroupDefaults {
  Compression compression;              // the group's or the environment's
  std::uint64_t min_bytes = 64 * 1024;  // smaller tensors are sent uncompressed
  Algorithm algorithm = Algorithm::automatic;
  int averaged = 0;  // ResolvedCall::averaged
  bool has_board = false;
  std::size_t slice_bytes = kDefaultSliceBytes;  // the job's
  std::uint64_t window_bytes = 0;                // of distant ranks; 0: they are near
  PooledVector<int> hosts{};                     // by group rank; empty: all on one
  PooledVector<int> sites{};                     // by group rank; empty: all in one
  PooledVector<int> shares{};                    // by group rank, of owners (plan/cost/shares.h); empty: equal
  AlgorithmTable* algorithms = nullptr;          // the group's; null: as if all ranks shared a host
  const CompressionTrials* trials = nullptr;     // the group's; null: automatic compression is none
};

// The codec of a call by the rules on size, type and operation; automatic compression stays automatic. The group's
// codec is for sums and averages of float32, float16 and bfloat16 from min_bytes on; all_gather, all_to_all and
// broadcast are compressed only if the call itself asks. Unsupported, with the reason, if the call asks for a codec
// that does not support it.
Result<Compression> choose_compression(const CollectiveCall& call, int world, const GroupDefaults& defaults);

// The codec of a message: the one that it names, or none where that would not make its type smaller. InvalidArgument,
// Misuse or Unsupported if the call has a codec or an error feedback that it cannot have.
Result<Compression> choose_compression(const MessageCall& call);

// Checks the call and makes every choice except that of a mapped region. InvalidArgument or Unsupported if the call is
// wrong.
Result<engine::ResolvedCall> resolve(const CollectiveCall& call, int world, const GroupDefaults& defaults);

// Why the call has its algorithm, for people: "hierarchical, 35.3 ms: saves 65 % of the time of sra
// (one_shot 1.2 s, sra 101 ms, ring 53 ms, tree 80 ms)".
std::string explain_algorithm(const engine::ResolvedCall& call, int world, const CallOptions& options,
                              const GroupDefaults& defaults);

// The seconds that the cost model predicts for the call; without counts of other ranks, as if theirs were this rank's.
double predict_seconds(const engine::ResolvedCall& call, int world, const GroupDefaults& defaults);

}  // namespace qccl::comm
