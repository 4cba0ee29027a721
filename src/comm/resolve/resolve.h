// What a call becomes: codec and algorithm, as pure functions of what every rank knows alike.
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

// Settings of a group that calls fall back to.
struct GroupDefaults {
  Compression compression;              // group's or environment's
  std::uint64_t min_bytes = 64 * 1024;  // smaller tensors are sent as they are
  Algorithm algorithm = Algorithm::automatic;
  bool has_board = false;
  std::size_t slice_bytes = kDefaultSliceBytes;  // the job's
  PooledVector<int> hosts{};                     // by group rank; empty: all on one
  AlgorithmTable* table = nullptr;               // the group's; null: as if all ranks shared a host
  const CompressionTrials* automatic = nullptr;  // the group's; null: automatic compression is none
};

// The codec of a call after the rules on size, type and operation. The group's covers sums and
// averages of float32, float16 and bfloat16 from min_bytes on; all_gather, all_to_all and broadcast
// are compressed only if the call itself asks. A codec that the call itself asks for and that
// can't serve it is an error (Unsupported) that says why. An automatic one stays that.
Result<Compression> choose_compression(const CollectiveCall& call, int world, const GroupDefaults& defaults);

// Checks the call and makes every choice, but for a mapped region. InvalidArgument or Unsupported, naming what is
// wrong.
Result<engine::ResolvedCall> resolve(const CollectiveCall& call, int world, const GroupDefaults& defaults);

// Why the call has its algorithm, in words: "hierarchical, 35.3 ms: saves 65 % of the time of sra
// (one_shot 1.2 s, sra 101 ms, ring 53 ms, tree 80 ms)".
std::string explain_algorithm(const engine::ResolvedCall& call, int world, const CallOptions& options,
                              const GroupDefaults& defaults);

}  // namespace qccl::comm
