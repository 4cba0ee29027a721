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
#include "comm/auto/compression_trial.h"
#include "comm/resolve/algorithm_table.h"
#include "engine/call/executable_plan.h"
#include "qccl/communicator.h"
#include "qccl/types.h"

namespace qccl::comm {

// A collective as the user wrote it. Lives on the caller's stack until the call is posted and never changes.
struct CollectiveCall {
  Collective collective;
  const void* input;
  void* output;
  std::size_t count;
  DataType type;
  const CallOptions& options;
  // The v forms: each rank's count; all_to_all: what this rank sends to each rank, then what it receives from each.
  std::optional<PooledVector<std::uint64_t>> counts{};

  // Each rank's count, or that of all ranks together in the v forms.
  std::uint64_t total_count() const {
    return counts ? std::accumulate(counts->begin(), counts->end(), std::uint64_t{0}) : count;
  }
  // Ranks do not know each other's counts.
  bool has_private_counts() const { return collective == Collective::all_to_all && counts.has_value(); }
};

// A send or a recv.
struct MessageCall {
  const void* input;  // of a send, else null
  void* output;       // of a recv
  bool incoming;
  std::size_t count;
  DataType type;
  int peer;
  const MessageOptions& options;
};

// Settings of a group, for calls without their own.
struct GroupDefaults {
  Compression compression;              // the group's or the environment's
  std::uint64_t min_bytes = 64 * 1024;  // smaller tensors are sent uncompressed
  Algorithm algorithm = Algorithm::automatic;
  bool has_board = false;
  std::size_t slice_bytes = kDefaultSliceBytes;  // the job's
  std::uint64_t window_bytes = 0;                // of distant ranks; 0: they are near
  PooledVector<int> hosts{};                     // by group rank; empty: all on one
  PooledVector<int> sites{};                     // by group rank; empty: all in one
  AlgorithmTable* algorithms = nullptr;          // the group's; null: as if all ranks shared a host
  const CompressionTrials* trials = nullptr;     // the group's; null: automatic compression is none
};

// The codec of a call by the rules on size, type and operation; automatic compression stays automatic. The group's
// codec is for sums and averages of float32, float16 and bfloat16 from min_bytes on; all_gather, all_to_all and
// broadcast are compressed only if the call itself asks. Unsupported, with the reason, if the call asks for a codec
// that does not support it.
Result<Compression> choose_compression(const CollectiveCall& call, int world, const GroupDefaults& defaults);

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
