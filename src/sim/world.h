// All ranks of a job in one thread: the real engine over the simulated network with its virtual
// clock, with calls that have sizes but no data, so that hundreds of ranks fit.
//
// What is simulated is what moves: frames, grants, queues. Computing takes no time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "transport/sim/network.h"

namespace qccl::sim {

struct WorldOptions {
  int ranks = 1;
  std::uint64_t seed = 1;
  LinkOptions links;
  std::size_t slice_bytes = kDefaultSliceBytes;
  // (rank, when): it dies so long after the call was posted.
  std::vector<std::pair<int, Nanoseconds>> losses{};
};

// How one call went.
struct Outcome {
  Nanoseconds time{0};  // until the last rank that lives had ended it
  Account account;      // of that rank's last frame; together its time
  std::uint64_t wire_bytes = 0;
  std::uint64_t frames = 0;
  int failed_ranks = 0;
  std::string failure;  // of the first of them
};

class World {
 public:
  explicit World(WorldOptions options);
  ~World();

  // Posts the call on all ranks at once and runs it to its end; once only, the clock starts at 0.
  // ResourceExhausted after so many frames.
  Result<Outcome> run(const engine::Call& call, std::uint64_t max_frames);

 private:
  struct Rank {
    std::unique_ptr<engine::Engine> engine;
    std::shared_ptr<internal::WorkState> work;
    TimePoint ended{};
    Account account;
  };

  void post(const engine::Call& call);
  void progress(int rank);
  bool go_on();
  Outcome outcome() const;

  const WorldOptions options_;
  Network network_;
  std::vector<Rank> ranks_;
  std::vector<std::pair<TimePoint, int>> losses_;  // the next one last
  int running_ = 0;                                // ranks whose call has not ended
};

}  // namespace qccl::sim
