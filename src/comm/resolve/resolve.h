// Chooses a call's codec and algorithm, by pure functions of what all ranks know.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "comm/auto/compression_trials.h"
#include "comm/resolve/algorithm_table.h"
#include "comm/resolve/collective_call.h"
#include "engine/call/resolved_call.h"
#include "qccl/communicator.h"

namespace qccl::comm {

// Settings of a group, for calls without their own.
struct GroupDefaults {
  Compression compression;              // the group's or the environment's
  std::uint64_t min_bytes = 64 * 1024;  // smaller tensors are sent uncompressed
  Algorithm algorithm = Algorithm::automatic;
  bool has_board = false;
  std::size_t slice_bytes = kDefaultSliceBytes;  // the job's
  PooledVector<int> hosts{};                     // by group rank; empty: all on one
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

}  // namespace qccl::comm
