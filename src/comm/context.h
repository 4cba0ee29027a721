// What a process has once per job: its settings, its log, the running engine and the job's groups.
//
// Owned by shared_ptr from every open communicator; several may live in one process, which is how
// tests run many ranks under a thread sanitizer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/options.h"
#include "base/result.h"
#include "bootstrap/door/door.h"
#include "bootstrap/launcher/membership.h"
#include "bootstrap/mesh/full_mesh.h"
#include "comm/call_poster.h"
#include "comm/devices/device_staging.h"
#include "comm/devices/gate_watch.h"
#include "comm/inspect/status_server.h"
#include "comm/job_groups.h"
#include "engine/engine.h"
#include "engine/progress/progress_driver.h"
#include "observe/log_store.h"
#include "os/fd.h"
#include "qccl/communicator.h"
#include "secure/key.h"
#include "transport/transport.h"

namespace qccl::comm {

// The settings of a job: init()'s options, else the environment's.
struct Settings {
  Options options;
  Compression compression;  // of groups that do not set their own
  LogOptions log{};
  secure::Protection protection{};
  std::string job{};               // its name, the same for newcomers
  std::string interface_filter{};  // as in bootstrap::Membership
  std::string filter_source{};
};
Result<Settings> merge_options(const InitOptions& init);

struct TransportOptions {
  int rank = 0;
  int world = 1;
  bool shares_cores = false;               // the machine has more ranks than cores
  std::optional<std::string> link_rate{};  // "1gbit": see transport/pacing.h
  std::string congestion = "system";       // QCCL_CONGESTION
  TimePoint deadline = kForever;           // of setting up shared memory
};

// Blocks until the ranks of this host have exchanged their memory. Two ranks that cannot share memory use TCP between
// them; without a TCP connection (QCCL_TRANSPORT=shm) that is an error.
Result<std::unique_ptr<Transport>> make_transport(bootstrap::PeerSockets links, const TransportOptions& options,
                                                  const Clock& clock);

// The running engine of a rank: its transport, the engine over it, the thread that drives it and the one that answers
// questions about it.
class EngineRuntime {
 public:
  // Starts the threads. `self` says rank, world and job to those that ask. The clock outlives the object.
  EngineRuntime(std::unique_ptr<Transport> transport, const engine::EngineOptions& options,
                const engine::PollingOptions& polling, const RankStatus& self, const Clock& clock);
  // Says goodbye to the peers, sends what is queued and closes: see Engine::leave_patience().
  ~EngineRuntime();
  EngineRuntime(const EngineRuntime&) = delete;
  EngineRuntime& operator=(const EngineRuntime&) = delete;

  engine::ProgressDriver& driver() { return driver_; }
  const Transport& transport() const { return *transport_; }
  GateWatch& gate_watch() { return gate_watch_; }

 private:
  const std::unique_ptr<Transport> transport_;
  engine::Engine engine_;
  engine::ProgressDriver driver_;
  std::optional<StatusServer> status_;
  GateWatch gate_watch_{[this] { return engine_.rounds(); }};
};

// How a job begins on this rank.
struct Beginning {
  bootstrap::Membership membership;
  Settings settings;
  std::shared_ptr<Store> store{};           // where its ranks meet; null: as the membership says
  std::shared_ptr<bootstrap::Door> door{};  // of the job that grew to this one
  bool is_start = true;  // not by growing: opens a door if the settings say so, and lists it in the store
};

// A door as the settings say; null if they say none.
Result<std::shared_ptr<bootstrap::Door>> open_door(const Settings& settings);

// Adds the door to the list in the store of the start. Newcomers can find the members without it, so a failure is only
// logged.
void list_door(const bootstrap::Door& door, const Settings& settings, Store& store, const Clock& clock);

// As init()'s options, the launcher and the environment say. Contacts no peer.
Result<Beginning> begin_job(const InitOptions& init);

// What calls take memory from. Outlives the operations.
struct CallMemory {
  explicit CallMemory(const Options& options) : devices(std::make_shared<DeviceStaging>(options)) {}
  // At which streams of the device wait for calls; null: they don't, and the host waits.
  Result<device::Gates*> gates(int device) {
    QCCL_ASSIGN(device::Gates* const gates, devices->gates(device));
    if (gates != nullptr) watch->add(*gates);
    return gates;
  }

  const std::shared_ptr<DeviceStaging> devices;  // shared with error feedback that is in their memory
  GateWatch* watch = nullptr;                    // the running engine's
  engine::KeptPool kept_inputs;
};

class Context {
 public:
  // Finds the other ranks, connects to all of them and starts the progress thread. Blocks up to
  // the init timeout; DeadlineExceeded names the ranks that are missing.
  static Result<std::shared_ptr<Context>> create(Beginning beginning);

  // Closes the connections and writes the log. Does nothing in a forked child, whose threads are gone and whose
  // descriptors are the parent's.
  ~Context();

  // Misuse in a forked child of the process that created it.
  Status usable() const;

  int rank() const { return membership_.rank; }
  int world() const { return membership_.world; }
  const Settings& settings() const { return settings_; }
  // Null if this rank is not open.
  const std::shared_ptr<bootstrap::Door>& door() const { return door_; }
  // The hosts of some world ranks, in their order.
  std::vector<int> hosts_of(const std::vector<int>& ranks) const;
  JobGroups& groups() { return *groups_; }
  engine::ProgressDriver& driver() { return runtime_->driver(); }
  CallBatch& call_batch() { return call_batch_; }
  const Clock& clock() const { return clock_; }
  CallMemory& call_memory() { return *call_memory_; }
  const std::shared_ptr<internal::LogStore>& log() const { return log_; }
  // Describes the group for people: see Communicator::describe().
  std::string describe(const GroupIdentity& group) const;

 private:
  Context(bootstrap::Membership membership, Settings settings);
  Result<bootstrap::PeerSockets> meet(std::shared_ptr<Store> own_store, double line_rate, TimePoint deadline);
  Status connect(CostEnvironment cost_environment, std::shared_ptr<Store> own_store);
  engine::EngineOptions engine_options() const;

  const os::ForkMark mark_;
  const bootstrap::Membership membership_;
  const Settings settings_;
  std::shared_ptr<bootstrap::Door> door_;
  std::vector<int> hosts_;  // by world rank
  SteadyClock clock_;
  const std::shared_ptr<internal::LogStore> log_;
  CallBatch call_batch_;
  std::unique_ptr<CallMemory> call_memory_;
  std::unique_ptr<EngineRuntime> runtime_;
  std::optional<JobGroups> groups_;
};

}  // namespace qccl::comm
