#include "job/context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <new>

#include "base/digest/digest.h"
#include "base/log.h"
#include "base/options.h"
#include "bootstrap/door/door.h"
#include "bootstrap/meeting/open_store.h"
#include "bootstrap/mesh/full_mesh.h"
#include "engine/engine.h"
#include "engine/progress/progress_driver.h"
#include "job/call_memory.h"
#include "job/engine_runtime.h"
#include "job/job_groups.h"
#include "job/job_page.h"
#include "job/job_start.h"
#include "job/status/job_totals.h"
#include "job/status/metrics_file.h"
#include "job/transport_factory.h"
#include "observe/log_store.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::comm {
namespace {

using bootstrap::LaunchIdentity;

// How long rank 0 serves the store for ranks that still read from it when the mesh is complete.
constexpr Nanoseconds kStoreLinger = std::chrono::seconds(5);
// How long a waiting thread polls before it sleeps, on shared cores too: the system sees that a sleeper is idle and
// wakes it on a free core, whereas of four polling ranks three may stay on one core and leave the other to the fourth.
constexpr Nanoseconds kSpin = std::chrono::microseconds(50);

// Whether all ranks are on this host and reach each other by TCP.
bool is_loopback(const Transport& transport, const LaunchIdentity& own) {
  for (WorldRank peer(0); peer.value() < own.world; ++peer) {
    if (peer.value() == own.rank) continue;
    if (!transport.is_local(peer) || std::string_view(transport.kind(peer)) != "tcp") return false;
  }
  return own.world > 1;
}

// "shm", or "tcp by 8 connections".
std::string kind_of(const Transport& transport, WorldRank peer) {
  const int connections = transport.connections(peer);
  return connections == 1 ? transport.kind(peer)
                          : fmt::format("{} by {} connections", transport.kind(peer), connections);
}

std::shared_ptr<internal::LogStore> make_log(const LaunchIdentity& own, const LogOptions& options, const Clock& clock) {
  internal::LogStore::Identity identity;
  identity.rank = options.rank.value_or(own.rank);
  identity.world = own.world;
  identity.job = digest(own.job);
  identity.host = os::host_name();
  // The monotonic clock runs from the machine's start, in containers too.
  identity.clock = os::system_value("/proc/sys/kernel/random/boot_id").value_or("");
  identity.unix_offset_ns = (time_of_day() - clock.now().time_since_epoch()).count();
  return std::make_shared<internal::LogStore>(std::move(identity));
}

RankStatus status_of(const LaunchIdentity& own, std::uint64_t job) {
  RankStatus self;
  self.process = os::process_id();
  self.rank = own.rank;
  self.world = own.world;
  self.job = fmt::format("{:08x}", job & 0xFFFFFFFF);
  self.user = os::own_credentials().user;
  self.host = os::host_name();
  return self;
}

}  // namespace

Context::Context(LaunchIdentity launch, Settings settings)
    : launch_(std::move(launch)),
      settings_(std::move(settings)),
      log_(make_log(launch_, settings_.log, clock_)),
      call_memory_(std::make_unique<CallMemory>(settings_.options)) {}

Result<std::shared_ptr<Context>> Context::create(JobStart start) {
  QCCL_ASSIGN(CostEnvironment cost_environment, cost_environment_of(start.settings.options));
  QCCL_TRY(check_sites(cost_environment.sites, start.launch.world));
  std::shared_ptr<Context> context(new Context(std::move(start.launch), std::move(start.settings)));
  QCCL_TRY(context->log_->configure(context->settings_.log));
  if (const auto& address = context->settings_.options.dashboard) QCCL_TRY(JobPage::check(*address));
  if (const auto& file = context->settings_.options.metrics_file) {
    QCCL_TRY(MetricsFile::check(metrics_path(*file, context->rank())));
  }
  if (!start.grown) {  // before ranks connect, so that the store in which they meet can list it
    QCCL_ASSIGN(context->door_, open_door(context->settings_));
  }
  QCCL_TRY(context->connect(std::move(cost_environment), start));
  if (start.grown) context->door_ = std::move(start.grown->door);
  return context;
}

Status Context::connect(CostEnvironment cost_environment, JobStart& start) {
  const Options& options = settings_.options;
  const TimePoint deadline = saturating_add(clock_.now(), options.init_timeout);
  QCCL_ASSIGN(bootstrap::PeerSockets links, meet(start, cost_environment.line_rate(0), deadline));
  hosts_ = links.hosts;
  const std::uint64_t job = world() == 1 ? os::random_nonce() : links.job;
  const bool shares_cores = links.machine_ranks > links.machine_cores;
  cost_environment.shared_cores = shares_cores ? links.machine_cores : 0;
  cost_environment.one_machine = links.machine_ranks == world();
  const TransportOptions transport_options{.rank = rank(),
                                           .world = world(),
                                           .shares_cores = shares_cores,
                                           .link_rate = options.link_rate,
                                           .congestion = options.congestion,
                                           .uses_all_connections = options.connections.has_value(),
                                           .deadline = deadline};
  QCCL_ASSIGN(auto transport, make_transport(std::move(links), transport_options, clock_));
  if (const FrameRooms* const rooms = transport->host_memory().rooms; rooms != nullptr) {
    call_memory_->devices->set_frame_memory(rooms->memory());
  }
  const bool has_long_slices = shares_cores || is_loopback(*transport, launch_);
  if (has_long_slices && !options.slice_bytes) cost_environment.slice_bytes = kLongSliceBytes;
  const engine::PollingOptions polling{.spin = options.spin.value_or(kSpin), .yield_while_spinning = shares_cores};
  const engine::EngineOptions engine = engine_options();
  runtime_ = std::make_unique<EngineRuntime>(std::move(transport), engine, polling, status_of(launch_, job), clock_);
  driver_ = &runtime_->driver();
  totals_ = JobTotals::of(rank());
  runtime_->watch_gates(*call_memory_->devices);
  if (options.dashboard && rank() == 0) runtime_->serve_page(*options.dashboard, log_);
  if (options.metrics_file) {
    runtime_->write_metrics(metrics_path(*options.metrics_file, rank()), options.metrics_every);
  }
  groups_ =
      std::make_unique<JobGroups>(driver(), std::move(cost_environment), engine.slice_bytes, options.init_timeout);
  return {};
}

// The store is needed only until all ranks are connected, but for newcomers.
Result<bootstrap::PeerSockets> Context::meet(JobStart& start, double line_rate, TimePoint deadline) {
  bootstrap::FullMeshOptions mesh;
  mesh.launch = launch_;
  mesh.transport = settings_.options.transport;
  mesh.protection = settings_.protection;
  if (const auto& grid = settings_.options.hosts) {
    if (grid->hosts * grid->ranks != world()) {
      return Failure(ErrorKind::invalid_argument,
                     fmt::format("QCCL_HOSTS={}x{} is for {} ranks, this job has {}", grid->hosts, grid->ranks,
                                 grid->hosts * grid->ranks, world()));
    }
    mesh.host_suffix = fmt::format("/{}", rank() / grid->ranks);
  }
  mesh.connections = {.told = settings_.options.connections,
                      .bytes_per_second = line_rate,
                      .send_buffer_bytes = os::tcp_buffer_sizes("tcp_wmem").value_or(os::BufferSizes{}).largest,
                      .in_cloud = bootstrap::is_in_limiting_cloud()};
  mesh.deadline = deadline;
  mesh.timeout = settings_.options.init_timeout;
  if (auto& grown = start.grown) {
    return bootstrap::connect_full_mesh(std::move(grown->listener), std::move(grown->cards), mesh, grown->look, clock_);
  }
  const bool lists_alone = door_ != nullptr && start.store != nullptr;
  if (world() == 1 && !lists_alone) return bootstrap::connect_full_mesh(nullptr, mesh, clock_);
  QCCL_ASSIGN(auto meeting,
              bootstrap::open_store(launch_, std::move(start.store), deadline, clock_, settings_.protection.key));
  mesh.location = meeting.location;
  mesh.launch.master_address = meeting.address;
  auto links = bootstrap::connect_full_mesh(world() == 1 ? nullptr : meeting.store.get(), mesh, clock_);
  if (links && door_ != nullptr) {
    list_door(*door_, settings_, *meeting.store, clock_);
    door_->keep(std::move(meeting.server));
  }
  meeting.close(kStoreLinger);
  return links;
}

engine::EngineOptions Context::engine_options() const {
  const Options& options = settings_.options;
  engine::EngineOptions engine;
  engine.rank = WorldRank(rank());
  engine.world = world();
  engine.slice_bytes = options.slice_bytes.value_or(kDefaultSliceBytes);
  engine.checksum = options.checksum;
  engine.seed = options.seed;
  engine.peer_timeout = options.peer_timeout;
  engine.hosts = hosts_;
  engine.log = log_;
  return engine;
}

Context::~Context() {
  if (mark_.inherited()) {
    static_cast<void>(runtime_.release());
    static_cast<void>(call_memory_.release());
    if (totals_ != nullptr) new std::shared_ptr<JobTotals>(std::move(totals_));  // the parent's line
    return;
  }
  if (runtime_ == nullptr) return;
  add_totals();
  runtime_.reset();
  try {
    const Status written = log_->write_file();
    if (!written.ok()) qccl::log(LogLevel::error, written.error().message);
  } catch (const std::bad_alloc&) {
    // Reporting it would need memory too.
  }
}

// While the connections are there to be asked.
void Context::add_totals() {
  try {
    const RankStatus ended = runtime_->survey().own();
    bool is_first = true;
    driver_->with_engine([&](engine::Engine& engine) {
      for (WorldRank lower(0); lower.value() < rank(); ++lower) is_first = is_first && engine.peers()[lower].lost;
    });
    totals_->add(ended, is_first);
  } catch (const std::bad_alloc&) {  // the line leaves this job out
  }
}

Status Context::usable() const {
  if (!mark_.inherited()) return {};
  return Failure(ErrorKind::misuse,
                 fmt::format("QCCL rank {}: this is a forked child of the rank's process, where its connections are "
                             "closed; call qccl::init() in the child for a job of its own, or use this communicator in "
                             "the parent only",
                             rank()));
}

JobSurvey& Context::survey() { return runtime_->survey(); }

std::vector<int> Context::hosts_of(const std::vector<int>& ranks) const {
  std::vector<int> hosts;
  for (const int rank : ranks) hosts.push_back(hosts_[static_cast<std::size_t>(rank)]);
  return hosts;
}

std::string Context::describe(const GroupIdentity& group) const {
  std::map<std::string, std::vector<int>> by_kind;
  for (const int peer : group.ranks) {
    if (peer != rank()) by_kind[kind_of(runtime_->transport(), WorldRank(peer))].push_back(peer);
  }
  std::string text = fmt::format("rank {} of {} from {}", rank(), world(), launch_.source);
  if (group.size() != world() || !std::ranges::is_sorted(group.ranks)) {
    text = fmt::format("rank {} of {} in group '{}' ({})", group.rank, group.size(), group.name, text);
  }
  for (const auto& [kind, peers] : by_kind) {
    text += fmt::format(", {} to rank{} {}", kind, peers.size() == 1 ? "" : "s", fmt::join(peers, ", "));
  }
  const double round_trip = measured(runtime_->transport(), group).longest;
  if (round_trip >= plan::kDistantRoundTrip) text += fmt::format(", up to {:.1f} ms there and back", round_trip * 1e3);
  if (settings_.options.link_rate) text += fmt::format(", paced at {}", *settings_.options.link_rate);
  return text;
}

}  // namespace qccl::comm
