// What a call becomes: codec and algorithm, as pure functions of what every rank knows alike.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "codec/codec.h"
#include "engine/call.h"
#include "qccl/communicator.h"

namespace qccl::comm {

// Settings of a group that calls fall back to.
struct GroupDefaults {
  Compression compression;              // group's or environment's
  std::uint64_t min_bytes = 64 * 1024;  // smaller tensors are sent as they are
  Algorithm algorithm = Algorithm::automatic;
  bool has_board = false;
};

// The codec of a call after the rules on size, type and operation. The group's covers sums and
// averages of float32, float16 and bfloat16 from min_bytes on; a codec that the call itself asks
// for and that can't serve it is an error (Unsupported) that says why.
Result<Compression> choose_compression(Collective collective, std::uint64_t count, DataType type, int world,
                                       const CallOptions& options, const GroupDefaults& defaults);

// Never automatic: one-shot where latency decides, SRA where bytes do.
Algorithm choose_algorithm(Collective collective, std::uint64_t count, DataType type, int world,
                           const Compression& compression, Algorithm asked);

// Checks the call and makes the engine's form of it. InvalidArgument or Unsupported, naming what
// is wrong.
Result<engine::Call> make_call(Collective collective, std::uint64_t count, DataType type, int world,
                               const CallOptions& options, const GroupDefaults& defaults);

}  // namespace qccl::comm
