#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/options.h"
#include "base/rank.h"
#include "engine/compute/compute.h"

namespace qccl::internal {
class LogStore;
}

namespace qccl::engine {

struct EngineOptions {
  WorldRank rank{0};
  int world = 1;
  std::size_t slice_bytes = kDefaultSliceBytes;  // of input; at most kMaxPayloadBytes
  bool checksum = true;                          // of payloads between hosts
  std::uint64_t seed = 0;                        // of codecs that draw random numbers
  Nanoseconds peer_timeout = std::chrono::seconds(60);
  Nanoseconds heartbeat_interval = std::chrono::milliseconds(250);
  std::vector<int> hosts{};                   // of each rank in the world; empty: all share one
  std::shared_ptr<internal::LogStore> log{};  // null: none
  ComputeFactory make_compute{};              // empty: HostCompute
};

}  // namespace qccl::engine
