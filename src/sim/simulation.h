// One call of a whole job, timed: sizes but no data, so that hundreds of ranks fit.
//
// What is simulated is what moves: frames, grants, queues. Computing takes the time that `processors` say.
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

// (rank, when): so long after the others made the call.
using Moments = std::vector<std::pair<int, Nanoseconds>>;

struct SimulationOptions {
  int ranks = 1;
  std::uint64_t seed = 1;
  LinkOptions links{};
  plan::Links processors{};  // of this how fast they compute, and cores; the rest says `links`
  std::size_t slice_bytes = kDefaultSliceBytes;
  Moments late{};          // these make the call then
  Moments losses{};        // these die, which the others see at once
  Moments stops{};         // these stop, which nobody is told
  Nanoseconds timeout{0};  // of the call; 0: it may take for ever
  std::uint64_t max_frames = UINT64_MAX;
  // Called every now and then with the frames sent so far.
  std::function<void(std::uint64_t frames)> on_progress{};
};

// How it went.
struct Outcome {
  Nanoseconds time{0};  // until the last rank that lives had ended it
  Account account;      // of that rank's last frame; together its time
  std::uint64_t wire_bytes = 0;
  std::uint64_t frames = 0;
  int failed_ranks = 0;
  std::string failure;  // of the first of them
};

// Makes the call on all ranks and runs it to its end.
// ResourceExhausted after max_frames; DeadlineExceeded if ranks wait for what never comes.
Result<Outcome> simulate(const SimulationOptions& options, const engine::ResolvedCall& call);

}  // namespace qccl::sim
