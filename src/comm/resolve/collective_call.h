// A call as the user wrote it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>

#include "base/pooled.h"
#include "qccl/communicator.h"
#include "qccl/types.h"

namespace qccl::comm {

// Lives on the caller's stack until the call is posted; nobody changes it.
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

}  // namespace qccl::comm
