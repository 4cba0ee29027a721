#include "comm/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <new>
#include <numeric>

#include "base/digest/digest.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/wall_clock.h"
#include "bootstrap/mesh/full_mesh.h"
#include "bootstrap/store/open_store.h"
#include "comm/links.h"
#include "comm/resolve/resolve.h"
#include "engine/engine_report.h"
#include "os/fork_list.h"
#include "os/limits.h"
#include "os/process.h"

namespace qccl::comm {
namespace {

using bootstrap::Membership;

// How long a closing context tries to get its last bytes out.
constexpr Nanoseconds kFlushPatience = std::chrono::seconds(2);
// How long rank 0 serves the store for ranks that still read from it when the mesh is complete.
constexpr Nanoseconds kStoreLinger = std::chrono::seconds(5);

Result<Compression> parse_compression(const char* variable, const std::string& text) {
  try {
    return Compression::parse(text);
  } catch (const Error& error) {
    return Failure(error.kind(), fmt::format("{}: {}", variable, error.what()));
  }
}

// All ranks are on this host and reach each other by TCP.
bool is_loopback(const Transport& transport, const Membership& own) {
  for (WorldRank peer(0); peer.value() < own.world; ++peer) {
    if (peer.value() == own.rank) continue;
    if (!transport.is_local(peer) || std::string_view(transport.kind(peer)) != "tcp") return false;
  }
  return own.world > 1;
}

// Also of ranks that share cores, which let each other have them between two looks: whoever sleeps is seen to be idle
// by the system, and woken on the core that is free, where ranks that poll on may stay three on one core and one on the
// other.
constexpr Nanoseconds kSpin = std::chrono::microseconds(50);

engine::PollingOptions polling_options(const Options& options, bool shares_cores) {
  return {.spin = options.spin.value_or(kSpin), .yield_while_spinning = shares_cores};
}

}  // namespace

Result<Settings> settle(const InitOptions& init) {
  auto options = Options::from_environment();
  if (!options.ok()) return options.failure();
  Settings settings{.options = std::move(*options), .compression = none()};
  Options& chosen = settings.options;
  if (init.timeout) chosen.timeout = *init.timeout;
  if (init.init_timeout) chosen.init_timeout = *init.init_timeout;
  if (init.transport) chosen.transport = *init.transport;
  if (init.log) settings.log = *init.log;
  if (chosen.log_file) {
    settings.log.enabled = true;
    settings.log.file = *chosen.log_file;
  }
  if (init.compression) {
    settings.compression = *init.compression;
    return settings;
  }
  const char* variable = chosen.compression ? "QCCL_COMPRESSION" : "BITS and bucket_size";
  const auto& text = chosen.compression ? chosen.compression : chosen.qnccl_compression;
  if (!text) return settings;
  auto compression = parse_compression(variable, *text);
  if (!compression.ok()) return compression.failure();
  settings.compression = *compression;
  return settings;
}

namespace {

std::shared_ptr<internal::LogStore> make_log(const Membership& own, const LogOptions& options, const Clock& clock) {
  internal::LogStore::Place place;
  place.rank = options.rank.value_or(own.rank);
  place.world = own.world;
  place.job = digest(own.job);
  place.host = os::host_name();
  // The monotonic clock runs from the machine's start, in containers too.
  place.clock = os::system_value("/proc/sys/kernel/random/boot_id").value_or("");
  place.unix_offset_ns = (time_of_day() - clock.now().time_since_epoch()).count();
  return std::make_shared<internal::LogStore>(std::move(place));
}

}  // namespace

Context::Context(Membership membership, Settings settings, CostEnvironment cost_environment)
    : membership_(std::move(membership)),
      settings_(std::move(settings)),
      cost_environment_(std::move(cost_environment)),
      slice_bytes_(settings_.options.slice_bytes.value_or(kDefaultSliceBytes)),
      log_(make_log(membership_, settings_.log, clock_)),
      core_(std::make_unique<Core>()) {}

Result<std::shared_ptr<Context>> Context::create(const InitOptions& init) {
  auto settings = settle(init);
  if (!settings.ok()) return settings.failure();
  auto membership = bootstrap::discover_membership(init, [](const char* name) { return environment(name); });
  if (!membership.ok()) return membership.failure();
  auto cost_environment = cost_environment_of(settings->options);
  if (!cost_environment.ok()) return cost_environment.failure();

  std::shared_ptr<Context> context(
      new Context(std::move(*membership), std::move(*settings), std::move(*cost_environment)));
  QCCL_TRY(context->log_->configure(context->settings_.log));
  const Membership& own = context->membership_;
  const Options& options = context->settings_.options;
  const TimePoint deadline = saturating_add(context->clock_.now(), options.init_timeout);
  auto links = context->meet(init.store, deadline);
  if (!links.ok()) return links.failure();
  const bool shares_cores = links->machine_ranks > links->machine_cores;
  const int shared_cores = shares_cores ? links->machine_cores : 0;
  const bool one_machine = links->machine_ranks == own.world;
  context->hosts_ = links->hosts;
  const std::uint64_t job = own.world == 1 ? os::random_nonce() : links->job;
  const LinkOptions link_options{.rank = own.rank,
                                 .world = own.world,
                                 .shares_cores = shares_cores,
                                 .transport = options.transport,
                                 .link_rate = options.link_rate,
                                 .deadline = deadline};
  auto transport = make_transport(std::move(*links), link_options, context->clock_);
  if (!transport.ok()) return transport.failure();
  context->cost_environment_.shared_cores = shared_cores;
  context->cost_environment_.one_machine = one_machine;
  const bool has_long_slices = shares_cores || is_loopback(**transport, own);
  if (has_long_slices && !options.slice_bytes) context->cost_environment_.slice_bytes = kLongSliceBytes;
  context->start(std::move(*transport), shares_cores);
  context->answer_questions(job);
  return context;
}

// The store is needed only until all ranks are connected.
Result<bootstrap::PeerSockets> Context::meet(std::shared_ptr<Store> own_store, TimePoint deadline) {
  bootstrap::FullMeshOptions mesh;
  mesh.membership = membership_;
  mesh.transport = settings_.options.transport;
  if (const auto& grid = settings_.options.hosts) {
    if (grid->hosts * grid->ranks != world()) {
      return Failure(ErrorKind::invalid_argument,
                     fmt::format("QCCL_HOSTS={}x{} is for {} ranks, this job has {}", grid->hosts, grid->ranks,
                                 grid->hosts * grid->ranks, world()));
    }
    mesh.host_suffix = fmt::format("/{}", rank() / grid->ranks);
  }
  mesh.deadline = deadline;
  mesh.timeout = settings_.options.init_timeout;
  if (world() == 1) return bootstrap::connect_full_mesh(nullptr, mesh, clock_);
  auto meeting = bootstrap::open_store(membership_, std::move(own_store), deadline, clock_);
  if (!meeting.ok()) return meeting.failure();
  mesh.location = meeting->location;
  mesh.membership.master_address = meeting->address;
  auto links = bootstrap::connect_full_mesh(meeting->store.get(), mesh, clock_);
  meeting->close(kStoreLinger);
  return links;
}

void Context::start(std::unique_ptr<Transport> transport, bool shares_cores) {
  core_->transport = std::move(transport);
  engine::EngineOptions options;
  options.rank = WorldRank(rank());
  options.world = world();
  options.slice_bytes = slice_bytes_;
  options.checksum = settings_.options.checksum;
  options.seed = settings_.options.seed;
  options.peer_timeout = settings_.options.peer_timeout;
  options.hosts = hosts_;
  options.log = log_;
  core_->engine = std::make_unique<engine::Engine>(*core_->transport, clock_, options);
  core_->driver = std::make_unique<engine::ProgressDriver>(*core_->engine, *core_->transport, clock_,
                                                           polling_options(settings_.options, shares_cores));
  core_->driver->start();
}

void Context::answer_questions(std::uint64_t job) {
  RankStatus self;
  self.process = os::process_id();
  self.rank = rank();
  self.world = world();
  self.job = fmt::format("{:08x}", job & 0xFFFFFFFF);
  core_->status = std::make_unique<StatusServer>(self, [driver = core_->driver.get()](RankStatus& status) {
    driver->with_engine([&](engine::Engine& engine) { engine::report(engine.parts(), status); });
  });
}

Context::~Context() {
  if (mark_.inherited()) {
    // The threads and descriptors are the parent's: touch nothing.
    static_cast<void>(core_.release());
    return;
  }
  core_->status.reset();
  if (core_->driver == nullptr) return;
  say_goodbye();
  core_->driver->stop();
  core_->transport->close();
  write_log();
}

void Context::write_log() const {
  try {
    const Status written = log_->write_file();
    if (!written.ok()) qccl::log(LogLevel::error, written.error().message);
  } catch (const std::bad_alloc&) {  // nor is there any to say so
  }
}

void Context::say_goodbye() {
  engine::ProgressDriver& driver = *core_->driver;
  const TimePoint deadline = saturating_add(clock_.now(), kFlushPatience);
  driver.with_engine([](engine::Engine& engine) { engine.say_goodbye(); });
  driver.drive_until_flushed(deadline);
}

Status Context::usable() const {
  if (!mark_.inherited()) return {};
  return Failure(ErrorKind::misuse,
                 fmt::format("QCCL rank {}: this is a forked child of the rank's process, where its connections are "
                             "closed; call qccl::init() in the child for a job of its own, or use this communicator in "
                             "the parent only",
                             rank()));
}

// A call of the library's own, in place.
Status Context::run(std::uint64_t group, const std::vector<int>& ranks, const CollectiveCall& call) {
  const int world = static_cast<int>(ranks.size());
  const auto own = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  GroupDefaults defaults;
  defaults.slice_bytes = slice_bytes_;
  auto resolved = resolve(call, world, defaults);
  if (!resolved.ok()) return resolved.failure();
  engine::CallArguments arguments;
  arguments.group = group;
  arguments.plan = std::make_shared<const engine::ExecutablePlan>(*resolved, world, GroupRank(own), nullptr);
  arguments.input = static_cast<const std::byte*>(call.input);
  arguments.output = static_cast<std::byte*>(call.output);
  arguments.timeout = settings_.options.init_timeout;
  arguments.is_logged = false;
  const auto work = driver().run(std::move(arguments));
  if (work != nullptr && work->failure()) return Failure(*work->failure());
  return {};
}

Result<bool> Context::open_group(std::uint64_t id, const std::string& name, const std::vector<int>& ranks,
                                 std::optional<std::uint64_t> parent) {
  Status opened;
  bool board = false;
  driver().with_engine([&](engine::Engine& engine) {
    opened = engine.groups().open(id, name, ranks, parent);
    board = opened.ok() && engine.groups().prepare_board(id);
  });
  if (!opened.ok()) return opened.failure();

  // The members agree: the board is used if all could take a cell; if the least of a digest and of its complement are
  // each other's, all have the same. This is also the barrier after which every member has opened the group.
  struct Agreement {
    std::uint64_t board, digest, complement;
  };
  const std::uint64_t own = digest(to_text(cost_environment_));
  Agreement agreement{board ? 1u : 0u, own, ~own};
  const CallOptions least{.op = ReduceOp::min, .algorithm = Algorithm::one_shot};
  Status agreed = run(id, ranks, {Collective::all_reduce, &agreement, &agreement, 3, DataType::uint64, least});
  if (agreed.ok() && agreement.digest != ~agreement.complement) {
    agreed = adopt_cost_environment(id, ranks);
  }
  if (!agreed.ok()) {
    close_group(id);
    return agreed.failure();
  }
  driver().with_engine([&](engine::Engine& engine) {
    engine.groups().end_opening(id);
    engine.groups().use_board(id, agreement.board == 1);
    engine.use_slices(cost_environment_.slice_bytes);
  });
  slice_bytes_ = cost_environment_.slice_bytes;
  return agreement.board == 1;
}

Status Context::adopt_cost_environment(std::uint64_t group, const std::vector<int>& ranks) {
  const std::string own = to_text(cost_environment_);
  std::string text = own;
  text.resize(kMaxCostEnvironmentBytes, '\0');
  const CallOptions options{.algorithm = Algorithm::one_shot};
  QCCL_TRY(run(group, ranks, {Collective::broadcast, text.data(), text.data(), text.size(), DataType::uint8, options}));
  text.resize(text.find('\0'));
  if (ranks.front() == rank() || text == own) return {};
  auto cost_environment = parse_cost_environment(text);
  if (!cost_environment.ok()) return cost_environment.failure();
  // Hosts may have different numbers of cores.
  cost_environment_.slice_bytes = cost_environment->slice_bytes;
  if (text == to_text(cost_environment_)) return {};
  qccl::log(LogLevel::warning,
            fmt::format(
                "rank {}: QCCL_PROFILE, QCCL_TRANSPORT or QCCL_LINK_RATE is not as on rank 0; algorithms are chosen by "
                "rank 0's",
                rank()));
  cost_environment_ = std::move(*cost_environment);
  return {};
}

std::vector<int> Context::hosts_of(const std::vector<int>& ranks) const {
  std::vector<int> hosts;
  for (const int rank : ranks) hosts.push_back(hosts_[static_cast<std::size_t>(rank)]);
  return hosts;
}

void Context::close_group(std::uint64_t id) {
  driver().with_engine([id](engine::Engine& engine) { engine.groups().close(id); });
}

void Context::refuse_group(std::uint64_t id, std::vector<int>&& ranks) {
  driver().with_engine([&](engine::Engine& engine) { engine.groups().refuse(id, std::move(ranks)); });
}

std::string Context::describe(const std::string& group, const std::vector<int>& ranks) const {
  std::map<std::string, std::vector<int>> by_kind;
  for (const int peer : ranks) {
    if (peer != rank()) by_kind[core_->transport->kind(WorldRank(peer))].push_back(peer);
  }
  std::string text = fmt::format("rank {} of {} from {}", rank(), world(), membership_.source);
  const bool is_whole = static_cast<int>(ranks.size()) == world() && std::is_sorted(ranks.begin(), ranks.end());
  if (!is_whole) {
    const auto own = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    text = fmt::format("rank {} of {} in group '{}' ({})", own, ranks.size(), group, text);
  }
  for (const auto& [kind, peers] : by_kind) {
    text += fmt::format(", {} to rank{} {}", kind, peers.size() == 1 ? "" : "s", fmt::join(peers, ", "));
  }
  if (settings_.options.link_rate) text += fmt::format(", paced at {}", *settings_.options.link_rate);
  return text;
}

}  // namespace qccl::comm
