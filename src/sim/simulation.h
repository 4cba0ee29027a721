// Simulates and times a call of a whole job: sizes but no data, so that hundreds of ranks fit.
//
// It simulates everything that moves: frames, grants, queues. Computing takes the time given by `processors`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "engine/call/call_arguments.h"
#include "plan/cost/cost.h"
#include "transport/sim/network.h"

namespace qccl::sim {

// (rank, delay): measured from the time at which the other ranks make the call.
using Moments = std::vector<std::pair<int, Nanoseconds>>;

struct SimulationOptions {
  int ranks = 1;
  std::uint64_t seed = 1;
  NetworkOptions links{};
  plan::MachineModel processors{};  // only its computing speeds and cores; `links` has the rest
  std::size_t slice_bytes = kDefaultSliceBytes;
  std::uint64_t window_bytes = 0;  // of distant ranks; 0: they are near
  int warm_up_calls = 0;           // equal ones before, each after the end of the last: connections learn the line
  Moments late{};                  // these ranks make the call later
  Moments losses{};                // these ranks die, and the others see it at once
  Moments stops{};                 // these ranks stop, and no rank is notified
  Nanoseconds timeout{0};          // of the call; 0: unlimited
  std::uint64_t max_frames = UINT64_MAX;
  // Called from time to time with the number of frames sent so far.
  std::function<void(std::uint64_t frames)> on_progress{};
};

// The result of a simulation.
struct SimulationResult {
  Nanoseconds time{0};                       // until the last living rank had ended it
  DelayBreakdown delays;                     // of that rank's last frame; its parts add up to the time
  std::vector<Nanoseconds> warm_up_times{};  // of the calls before
  std::uint64_t wire_bytes = 0;
  std::uint64_t frames = 0;
  PacketCounts packets{};        // none where no queue drops
  std::uint64_t held_bytes = 0;  // the most that one rank had received and not yet used
  int failed_ranks = 0;
  std::string failure;  // of the first rank that failed
};

// Makes the call on all ranks and runs it to its end. ResourceExhausted after max_frames; DeadlineExceeded if ranks
// wait for something that never comes.
Result<SimulationResult> simulate(const SimulationOptions& options, const engine::ResolvedCall& call);

}  // namespace qccl::sim
