// What a process has once per job: its settings, its log, the running engine and the job's groups.
//
// Owned by shared_ptr from every open communicator; several may live in one process, which is how
// tests run many ranks under a thread sanitizer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/launcher/launch_identity.h"
#include "job/call_batch.h"
#include "job/group_identity.h"
#include "job/settings.h"
#include "os/fd.h"

namespace qccl {
class Store;
}
namespace qccl::bootstrap {
class Door;
struct PeerSockets;
}  // namespace qccl::bootstrap
namespace qccl::engine {
class ProgressDriver;
struct EngineOptions;
}  // namespace qccl::engine
namespace qccl::internal {
class LogStore;
}

namespace qccl::comm {

struct CallMemory;
struct CostEnvironment;
class EngineRuntime;
class JobGroups;
class JobSurvey;
struct JobStart;
class JobTotals;

class Context {
 public:
  // Finds the other ranks, connects to all of them and starts the progress thread. Blocks up to
  // the init timeout; DeadlineExceeded names the ranks that are missing.
  static Result<std::shared_ptr<Context>> create(JobStart start);

  // Closes the connections and writes the log. Does nothing in a forked child, whose threads are gone and whose
  // descriptors are the parent's.
  ~Context();

  // Misuse in a forked child of the process that created it.
  Status usable() const;

  int rank() const { return launch_.rank; }
  int world() const { return launch_.world; }
  const Settings& settings() const { return settings_; }
  // Null if this rank is not open.
  const std::shared_ptr<bootstrap::Door>& door() const { return door_; }
  // The hosts of some world ranks, in their order.
  std::vector<int> hosts_of(const std::vector<int>& ranks) const;
  JobGroups& groups() { return *groups_; }
  JobSurvey& survey();
  engine::ProgressDriver& driver() { return *driver_; }
  CallBatch& call_batch() { return call_batch_; }
  const Clock& clock() const { return clock_; }
  CallMemory& call_memory() { return *call_memory_; }
  const std::shared_ptr<internal::LogStore>& log() const { return log_; }
  // Describes the group for people: see Communicator::describe().
  std::string describe(const GroupIdentity& group) const;

 private:
  Context(bootstrap::LaunchIdentity launch, Settings settings);
  Result<bootstrap::PeerSockets> meet(JobStart& start, double line_rate, TimePoint deadline);
  Status connect(CostEnvironment cost_environment, JobStart& start);
  engine::EngineOptions engine_options() const;
  void add_totals();

  const os::ForkMark mark_;
  const bootstrap::LaunchIdentity launch_;
  const Settings settings_;
  std::shared_ptr<bootstrap::Door> door_;
  std::vector<int> hosts_;  // by world rank
  SteadyClock clock_;
  const std::shared_ptr<internal::LogStore> log_;
  CallBatch call_batch_;
  std::shared_ptr<JobTotals> totals_;
  std::unique_ptr<CallMemory> call_memory_;
  std::unique_ptr<EngineRuntime> runtime_;
  engine::ProgressDriver* driver_ = nullptr;  // the runtime's
  std::unique_ptr<JobGroups> groups_;
};

}  // namespace qccl::comm
