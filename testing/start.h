// Starts the processes of a job: one guard and one process per rank, all in one process group.
//
// The guard waits until the test's process is gone, however that ended. Then it kills the group, including processes
// that ranks have started. So no rank, stopped or not, outlives its test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "packet.h"
#include "qccl/testing.h"

namespace qccl::testing {

class Guard {
 public:
  Guard();   // throws std::runtime_error
  ~Guard();  // kills the group, and waits for the guard itself
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  pid_t group() const { return process_; }
  // Kills every process of the group, the guard too.
  void kill_group() const;
  // For a rank's process: it must close its copy of the pipe end whose closing the guard waits for.
  void leave() { alive_.reset(); }

 private:
  pid_t process_ = -1;
  Fd alive_;
};

// The test's ends of a rank's process.
struct StartedRank {
  pid_t process = -1;
  Fd ended;    // a pidfd, readable when the process has ended
  Fd channel;  // packet.h
  Fd output;
};

struct StartPlan {
  const JobOptions& options;
  int rank;
  int call;  // which run_ranks() of the test this is, from 0
  Guard& guard;
};

// Throws std::runtime_error. In the new process of Start::fork it does not return: it calls `body` and ends that
// process.
StartedRank start_rank(const StartPlan& plan, const std::function<void(Rank&)>& body,
                       const std::function<void()>& close_others);

// The rank that this process is, if Start::spawn started it; nothing in any other process.
struct SpawnedRank {
  int rank;
  int call;
  int channel;
};
std::optional<SpawnedRank> spawned_rank();

}  // namespace qccl::testing
