// What a process has once per job: rank, connections to every other rank, engine and driver.
//
// Owned by shared_ptr from every open communicator; several may live in one process, which is how
// tests run many ranks under a thread sanitizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/options.h"
#include "base/result.h"
#include "bootstrap/launcher/membership.h"
#include "bootstrap/mesh/full_mesh.h"
#include "comm/call_batch.h"
#include "comm/inspect/status_server.h"
#include "comm/resolve/collective_call.h"
#include "comm/resolve/cost_environment.h"
#include "engine/engine.h"
#include "engine/progress/progress_driver.h"
#include "observe/log_store.h"
#include "os/fork_list.h"
#include "qccl/communicator.h"
#include "transport/transport.h"

namespace qccl::comm {

// The settings of a job after init()'s options and the environment were joined.
struct Settings {
  Options options;
  Compression compression;  // of groups that do not say their own
  LogOptions log{};
};
Result<Settings> settle(const InitOptions& init);

class Context {
 public:
  // Finds the other ranks, connects to all of them and starts the progress thread. Blocks up to
  // the init timeout; DeadlineExceeded names the ranks that are missing.
  static Result<std::shared_ptr<Context>> create(const InitOptions& init);

  // Says goodbye, sends what is queued, closes. In a forked child that inherited it: nothing.
  ~Context();

  // Opens a group of world ranks, this one among them, and agrees with its members on the use of
  // the board and on the cost_environment of choice, which are rank 0's. Collective over the group.
  // Returns whether the board is used. Fails at once if the group `parent` fails that it is made from.
  Result<bool> open_group(std::uint64_t id, const std::string& name, const std::vector<int>& ranks,
                          std::optional<std::uint64_t> parent);
  void close_group(std::uint64_t id);
  // There is no memory for a group, or for what belongs to it: its other members are told.
  void refuse_group(std::uint64_t id, std::vector<int>&& ranks);

  // Misuse in a forked child of the process that created it.
  Status usable() const;

  int rank() const { return membership_.rank; }
  int world() const { return membership_.world; }
  const Settings& settings() const { return settings_; }
  // Alike on all ranks once the first group is open.
  const CostEnvironment& cost_environment() const { return cost_environment_; }
  std::size_t slice_bytes() const { return slice_bytes_; }
  // The hosts of some world ranks, in their order.
  std::vector<int> hosts_of(const std::vector<int>& ranks) const;
  engine::ProgressDriver& driver() { return *core_->driver; }
  CallBatch& recorder() { return recorder_; }
  const Clock& clock() const { return clock_; }
  const std::shared_ptr<internal::LogStore>& log() const { return log_; }
  // A group of these ranks in words: see Communicator::describe().
  std::string describe(const std::string& group, const std::vector<int>& ranks) const;

 private:
  // In order of construction; torn down in reverse. Leaked in a forked child, whose threads are
  // gone and whose descriptors are closed.
  struct Core {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<engine::Engine> engine;
    std::unique_ptr<engine::ProgressDriver> driver;
    std::unique_ptr<StatusServer> status;
  };

  Context(bootstrap::Membership membership, Settings settings, CostEnvironment cost_environment);
  Result<bootstrap::PeerSockets> meet(std::shared_ptr<Store> own_store, TimePoint deadline);
  void start(std::unique_ptr<Transport> transport, bool shares_cores);
  void answer_questions(std::uint64_t job);
  Status run(std::uint64_t group, const std::vector<int>& ranks, const CollectiveCall& call);
  Status adopt_cost_environment(std::uint64_t group, const std::vector<int>& ranks);
  void say_goodbye();
  void write_log() const;

  const os::ForkMark mark_;
  const bootstrap::Membership membership_;
  const Settings settings_;
  CostEnvironment cost_environment_;
  std::size_t slice_bytes_;  // its own setting until the first group's ranks have agreed on the job's
  std::vector<int> hosts_;   // by world rank
  SteadyClock clock_;
  const std::shared_ptr<internal::LogStore> log_;
  CallBatch recorder_;
  std::unique_ptr<Core> core_;
};

}  // namespace qccl::comm
