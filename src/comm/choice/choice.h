// What a call becomes: codec and algorithm, as pure functions of what every rank knows alike.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "codec/codec.h"
#include "comm/auto/auto_table.h"
#include "comm/choice/algorithm_table.h"
#include "engine/call.h"
#include "qccl/communicator.h"

namespace qccl::comm {

// Settings of a group that calls fall back to.
struct GroupDefaults {
  Compression compression;              // group's or environment's
  std::uint64_t min_bytes = 64 * 1024;  // smaller tensors are sent as they are
  Algorithm algorithm = Algorithm::automatic;
  bool has_board = false;
  AlgorithmTable* table = nullptr;       // the group's; null: as if all ranks shared a host
  const AutoTable* automatic = nullptr;  // the group's; null: automatic compression is none
};

// How much data: the same count for every rank, or each rank's own (engine::Call::counts).
struct Extent {
  Extent(std::uint64_t same) : count(same) {}  // NOLINT: a count is an extent
  explicit Extent(std::span<const std::uint64_t> each);

  std::uint64_t count;  // of each rank, or of all together
  std::optional<PooledVector<std::uint64_t>> counts{};
};

// The codec of a call after the rules on size, type and operation. The group's covers sums and
// averages of float32, float16 and bfloat16 from min_bytes on; all_gather, all_to_all and broadcast
// are compressed only if the call itself asks. A codec that the call itself asks for and that
// can't serve it is an error (Unsupported) that says why. An automatic one stays that.
Result<Compression> choose_compression(Collective collective, std::uint64_t count, DataType type, int world,
                                       const CallOptions& options, const GroupDefaults& defaults);

// Checks the call and makes the engine's form of it. InvalidArgument or Unsupported, naming what
// is wrong.
Result<engine::Call> make_call(Collective collective, const Extent& extent, DataType type, int world,
                               const CallOptions& options, const GroupDefaults& defaults);

// Why the call has its algorithm, in words: "hierarchical, 35.3 ms: saves 65 % of the time of sra
// (one_shot 1.2 s, sra 101 ms, ring 53 ms, tree 80 ms)".
std::string explain_algorithm(const engine::Call& call, int world, const CallOptions& options,
                              const GroupDefaults& defaults);

}  // namespace qccl::comm
