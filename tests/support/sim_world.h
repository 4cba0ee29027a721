// All ranks of a job in one thread over the simulated network: whole collectives in microseconds,
// repeatable from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/choice.h"
#include "engine/engine.h"
#include "transport/sim/network.h"

namespace qccl::testing {

inline constexpr std::uint64_t kSimGroup = 1;

struct SimOptions {
  std::uint64_t seed = 1;
  sim::LinkOptions link{.bytes_per_second = 1e9, .latency = std::chrono::microseconds(20),
                        .jitter = std::chrono::microseconds(30)};
  std::size_t slice_bytes = 256 * 1024;
};

// One rank's buffers of a call.
struct SimBuffers {
  std::vector<std::byte> input;
  std::vector<std::byte> output;  // empty: in place, in `input`
};

class SimWorld {
 public:
  SimWorld(int world, SimOptions options = {});
  ~SimWorld();

  int size() const { return static_cast<int>(engines_.size()); }
  engine::Engine& engine(int rank) { return *engines_[static_cast<std::size_t>(rank)]; }
  sim::Network& network() { return network_; }

  // Posts a call on one rank; the buffers must live until it is done.
  std::shared_ptr<internal::WorkState> post(int rank, const engine::Call& call, const std::byte* input,
                                            std::byte* output, Nanoseconds timeout = std::chrono::seconds(10),
                                            std::uint64_t group = kSimGroup);
  // Runs until all the works are done; false if virtual time reaches `limit` first.
  bool run(const std::vector<std::shared_ptr<internal::WorkState>>& works,
           Nanoseconds limit = std::chrono::seconds(100));
  // One call on all ranks to its end; returns the first failure.
  std::optional<ErrorInfo> collective(const engine::Call& call, std::vector<SimBuffers>& buffers);
  // Lets everything that is on its way arrive.
  void settle();

 private:
  bool step();

  sim::Network network_;
  std::vector<std::unique_ptr<engine::Engine>> engines_;
};

// A call with automatic choices made as the public API makes them.
engine::Call make_call(Collective collective, std::uint64_t count, DataType type, int world,
                       const CallOptions& options = {});

}  // namespace qccl::testing
