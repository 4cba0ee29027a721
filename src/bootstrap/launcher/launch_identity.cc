#include "bootstrap/launcher/launch_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "bootstrap/launcher/launchers.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

struct Limits {
  std::int64_t low;
  std::int64_t high;
};
constexpr Limits kRanks = {0, kMaxWorld - 1};
constexpr Limits kWorlds = {1, kMaxWorld};

// A number, and the name of the option or variable that gave it.
struct Given {
  std::string name;
  std::int64_t value = 0;
};

Failure out_of_range(const Variable& variable, Limits limits) {
  return invalid(fmt::format("{} is \"{}\": expected a whole number from {} to {}", variable.name, variable.value,
                             limits.low, limits.high));
}

Result<std::optional<Given>> read_number(const std::optional<Variable>& variable, Limits limits) {
  if (!variable) return std::optional<Given>();
  const auto value = parse_number<std::int64_t>(variable->value);
  if (!value || *value < limits.low || *value > limits.high) return out_of_range(*variable, limits);
  return std::optional<Given>(Given{variable->name, *value});
}

// The option if the program set it, else the variable, else nothing.
template <class T>
Result<std::optional<Given>> read_number(const std::optional<T>& option, const char* option_name,
                                         const std::optional<Variable>& variable, Limits limits) {
  if (!option) return read_number(variable, limits);
  return read_number(Variable{fmt::format("InitOptions::{}", option_name), std::to_string(*option)}, limits);
}

Failure missing(const std::string& present, const std::string& absent) {
  return invalid(present + " is set but " + absent +
                 " is not: set both (torchrun and `qccl run` set all), or none for a single process");
}

// ---- what the program gives counts, and variables only for what it leaves open

bool gives_ranks(const InitOptions& options) { return options.rank && options.world; }

bool leaves_nothing_open(const InitOptions& options) {
  const bool gives_place = options.store != nullptr || (options.master_address && options.master_port);
  return gives_ranks(options) && (gives_place || *options.world == 1);
}

// ---- which variables count

// What a launcher's variables say about this process.
struct Claim {
  const Launcher* launcher = nullptr;
  std::optional<std::string> unsupported_reason{};  // if set, the rest is empty
  std::optional<Variable> rank{};
  std::optional<Variable> world{};

  bool is_complete() const { return rank && world; }
};

// Everything that a launch is derived from.
struct Inputs {
  const InitOptions& options;
  const EnvironmentLookup& lookup;
  std::vector<Claim> claims{};  // one a launcher

  Inputs(const InitOptions& init, const EnvironmentLookup& variables) : options(init), lookup(variables) {
    for (const Launcher& launcher : launchers()) {
      Claim& claim = claims.emplace_back(Claim{.launcher = &launcher});
      if (launcher.unsupported_reason != nullptr) claim.unsupported_reason = launcher.unsupported_reason(lookup);
      if (claim.unsupported_reason) continue;
      claim.rank = first_set(lookup, launcher.variables.rank);
      claim.world = first_set(lookup, launcher.variables.world);
    }
  }
};

// The first claim with rank and world, else the first with one of them; null if there is none.
const Claim* first_claim(const std::vector<Claim>& claims) {
  auto found = std::ranges::find_if(claims, &Claim::is_complete);
  if (found == claims.end())
    found = std::ranges::find_if(claims, [](const Claim& one) { return one.rank || one.world; });
  return found == claims.end() ? nullptr : &*found;
}

// What the variable says, if it can be a rank or a world.
std::optional<Given> number_in(const std::optional<Variable>& variable, Limits limits) {
  auto number = read_number(variable, limits);
  return number.ok() ? std::move(*number) : std::nullopt;
}

bool differs(const std::optional<Given>& given, std::int64_t value) { return given && given->value != value; }

bool agrees(const Claim& claim, const LaunchIdentity& own) {
  const auto rank = number_in(claim.rank, kRanks), world = number_in(claim.world, kWorlds);
  return rank && world && rank->value == own.rank && world->value == own.world;
}

bool is_torchrun(const Launcher& launcher) { return &launcher == &launchers().front(); }

bool is_slurm(const Launcher& launcher) { return std::string_view(launcher.name) == "Slurm"; }

// Whether `outer` may have started the launcher `inner` that started this process: srun starts an mpirun or a torchrun
// on each node, or a program starts its own processes.
bool may_be_outer(const Claim& outer, const Launcher& inner, const LaunchIdentity& own,
                  const EnvironmentLookup& lookup) {
  if (is_torchrun(inner) && lookup("TORCHELASTIC_RUN_ID")) return true;
  if (outer.launcher->counts_nodes) return own.world > 1;
  if (is_slurm(inner) || is_torchrun(*outer.launcher)) return false;
  if (!is_torchrun(inner)) return is_slurm(*outer.launcher) || lookup("SLURM_STEP_ID");
  const auto rank = number_in(outer.rank, kRanks), world = number_in(outer.world, kWorlds);
  if (!rank || !world) return false;
  const auto ranks_each = own.world / world->value;
  return ranks_each > 1 && own.world % world->value == 0 && own.rank / ranks_each == rank->value;
}

Failure contradiction(const Given& one, const Given& other, const Launcher& launcher) {
  return invalid(fmt::format("{} is {} but {} is {}, from {}: one of them is left from something else; unset it",
                             one.name, one.value, other.name, other.value, launcher.description));
}

// Rank and world were read from `taken`: checks that no other launcher contradicts them.
Status check_others(const Inputs& inputs, const Claim& taken, const Given& rank, const Given& world,
                    const LaunchIdentity& own) {
  for (const Claim& other : inputs.claims) {
    const auto its_rank = number_in(other.rank, kRanks), its_world = number_in(other.world, kWorlds);
    const bool differ = differs(its_rank, rank.value) || differs(its_world, world.value);
    if (&other == &taken || !differ || may_be_outer(other, *taken.launcher, own, inputs.lookup)) continue;
    if (differs(its_rank, rank.value)) return contradiction(rank, *its_rank, *other.launcher);
    return contradiction(world, *its_world, *other.launcher);
  }
  return {};
}

// ---- the rest of a launch

// Fills in what a launcher says about the ranks of this host, unless another one has said it or it cannot be true. A
// local rank is never an error: programs and job scripts also choose a device by LOCAL_RANK.
Status read_local_of(const Inputs& inputs, const Claim& claim, LaunchIdentity& own) {
  const RankVariables& variables = claim.launcher->variables;
  auto world = read_number(first_set(inputs.lookup, variables.local_world), {1, own.world});
  if (!world && !gives_ranks(inputs.options)) return world.failure();
  const bool has_world = world && *world && (*world)->value > own.local_rank;
  if (has_world && own.local_world == 0) own.local_world = static_cast<int>((*world)->value);
  const int ranks = own.local_world == 0 ? own.world : own.local_world;
  const auto rank = number_in(first_set(inputs.lookup, variables.local_rank), {0, ranks - 1});
  if (rank && own.local_rank < 0) own.local_rank = static_cast<int>(rank->value);
  return {};
}

// Reads only launchers with the same rank and world: another one may have started a program that sets its own rank.
// LOCAL_RANK and LOCAL_WORLD_SIZE count last.
Status read_local(const Inputs& inputs, LaunchIdentity& own) {
  if (leaves_nothing_open(inputs.options)) return {};
  for (const Claim& claim : inputs.claims) {
    if (!is_torchrun(*claim.launcher) && agrees(claim, own)) QCCL_TRY(read_local_of(inputs, claim, own));
  }
  const Claim& torchrun = inputs.claims.front();
  return agrees(torchrun, own) ? read_local_of(inputs, torchrun, own) : Status();
}

Status read_job(const Inputs& inputs, LaunchIdentity& own) {
  own.job = inputs.options.job;
  if (own.job.empty()) own.job = inputs.lookup("TORCHELASTIC_RUN_ID").value_or("default");
  if (leaves_nothing_open(inputs.options)) return {};
  QCCL_ASSIGN(const auto restart, read_number(first_set(inputs.lookup, {"TORCHELASTIC_RESTART_COUNT"}),
                                              {0, std::numeric_limits<std::int32_t>::max()}));
  if (restart) own.restart = static_cast<std::uint32_t>(restart->value);
  return {};
}

void read_filter(const Inputs& inputs, LaunchIdentity& own) {
  auto filter = find_interface_filter(inputs.lookup);
  for (const Claim& claim : inputs.claims) {
    const bool counts = claim.is_complete() && claim.launcher->interfaces != nullptr && !on_one_host(own);
    if (!filter && counts) filter = claim.launcher->interfaces(inputs.lookup);
  }
  if (!filter) return;
  own.interface_filter = filter->value;
  own.filter_source = filter->name;
}

bool needs_no_address(const LaunchIdentity& own) { return !own.meeting_socket.empty() || own.pmi_descriptor >= 0; }

// Fills in what else the launchers of this rank and world provide. Sets `advice` to the remedy if that is not enough.
Status ask_launchers(const Inputs& inputs, LaunchIdentity& own, std::string& advice) {
  for (const Claim& claim : inputs.claims) {
    if (!agrees(claim, own)) continue;
    advice = claim.launcher->how_to_set_master;
    if (claim.launcher->complete == nullptr) continue;
    const Status asked = claim.launcher->complete(inputs.lookup, own);
    if (!asked.ok()) return invalid(fmt::format("{}; {}", asked.error().message, advice));
    if (needs_no_address(own)) return {};
  }
  return {};
}

// Reads address and port of the store as options name them, and variables what options leave open.
Status read_address(const Inputs& inputs, LaunchIdentity& own) {
  const InitOptions& options = inputs.options;
  own.has_own_store = options.store != nullptr;
  const bool is_open = !own.has_own_store && !leaves_nothing_open(options);
  const auto variable = [&](const char* name) {
    return is_open ? first_set(inputs.lookup, {name}) : std::optional<Variable>();
  };
  QCCL_ASSIGN(const auto port, read_number(options.master_port, "master_port", variable("MASTER_PORT"), {1, 65535}));
  if (port) own.master_port = static_cast<std::uint16_t>(port->value);
  const auto address = variable("MASTER_ADDR");
  own.master_address = os::without_brackets(options.master_address.value_or(address ? address->value : ""));
  const bool from_variables = address && port && !options.master_address && !options.master_port;
  own.launcher_serves = from_variables && inputs.lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return {};
}

// Reads address and port of the store, and which rank serves it.
Status read_master(const Inputs& inputs, LaunchIdentity& own) {
  const InitOptions& options = inputs.options;
  QCCL_TRY(read_address(inputs, own));
  if (options.store != nullptr || own.world == 1) return {};
  std::string advice = launchers().front().how_to_set_master;
  QCCL_TRY(ask_launchers(inputs, own, advice));
  if (!needs_no_address(own) && (own.master_address.empty() || own.master_port == 0)) {
    return invalid(fmt::format("the world size is {} but {} is not set: {}", own.world,
                               own.master_address.empty() ? "MASTER_ADDR" : "MASTER_PORT", advice));
  }
  own.hosts_store = own.rank == 0 && !own.launcher_serves;
  return {};
}

// A setting that is present although rank and world size are not; empty if there is none.
std::optional<std::string> stray_setting(const Inputs& inputs) {
  if (inputs.options.store != nullptr) return "InitOptions::store";
  if (inputs.options.master_address) return "InitOptions::master_address";
  if (inputs.options.master_port) return "InitOptions::master_port";
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (inputs.lookup(name)) return name;
  }
  return std::nullopt;
}

// Fails if variables show a launch of several processes: each of them would believe to be alone.
Status check_signs(const Inputs& inputs) {
  for (const LaunchSign& sign : launch_signs()) {
    const auto index = inputs.lookup(sign.index), count = inputs.lookup(sign.count);
    if (!index || !count || *count == "1" || *count == "1:1") continue;
    return invalid(
        fmt::format("{} is {} and {} is {}: this process is one of several, but nothing says its rank; set RANK, "
                    "WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or start it by torchrun or another launcher that QCCL "
                    "knows; if it is alone, unset both",
                    sign.index, *index, sign.count, *count));
  }
  return {};
}

const char* name_of(const VariableNames& names) { return names.front() == nullptr ? "the world size" : names.front(); }

}  // namespace

Result<LaunchIdentity> discover_identity(const InitOptions& options, const EnvironmentLookup& lookup) {
  const Inputs inputs(options, lookup);
  const Claim* taken = first_claim(inputs.claims);
  const Claim& claim = taken == nullptr ? inputs.claims.front() : *taken;
  const Launcher& launcher = *claim.launcher;
  QCCL_ASSIGN(const auto rank, read_number(options.rank, "rank", claim.rank, kRanks));
  QCCL_ASSIGN(const auto world, read_number(options.world, "world", claim.world, kWorlds));
  LaunchIdentity own;
  if (!rank && !world) {
    QCCL_TRY(check_signs(inputs));
    if (const auto stray = stray_setting(inputs)) return missing(*stray, name_of(launcher.variables.rank));
    own.local_rank = 0;
    own.local_world = 1;
    own.source = "a single process (no ranks in options or environment)";
    read_filter(inputs, own);
    return own;
  }
  if (!rank) return missing(world->name, name_of(launcher.variables.rank));
  if (!world) return missing(rank->name, name_of(launcher.variables.world));
  if (rank->value >= world->value) {
    return invalid(fmt::format("{} is {} but {} is {}: ranks count from 0 to the world size - 1", rank->name,
                               rank->value, world->name, world->value));
  }
  own.rank = static_cast<int>(rank->value);
  own.world = static_cast<int>(world->value);
  const bool from_options = gives_ranks(options);
  own.source = from_options ? "init() options" : launcher.description;
  if (!from_options) QCCL_TRY(check_others(inputs, claim, *rank, *world, own));
  QCCL_TRY(read_local(inputs, own));
  QCCL_TRY(read_job(inputs, own));
  QCCL_TRY(read_master(inputs, own));
  read_filter(inputs, own);
  return own;
}

Result<LaunchIdentity> discover_store(const InitOptions& options, const EnvironmentLookup& lookup) {
  const Inputs inputs(options, lookup);
  LaunchIdentity own;
  QCCL_TRY(read_job(inputs, own));
  QCCL_TRY(read_address(inputs, own));
  if (!own.master_address.empty() && own.master_port != 0) return own;
  return invalid(
      "to join through the store in which the job began, set MASTER_ADDR and MASTER_PORT as for its ranks; "
      "or name members' doors, HOST:PORT,...");
}

namespace {

std::string values_text(const Claim& claim) {
  return fmt::format("{}={}, {}={}", claim.rank->name, claim.rank->value, claim.world->name, claim.world->value);
}

// Why the launcher's variables were not taken. `taken`: the launcher that was, or null.
std::string rejection_reason(const Claim& claim, const Claim* taken) {
  const auto& rank = claim.rank;
  const auto& world = claim.world;
  const auto& names = claim.launcher->variables;
  if (claim.unsupported_reason) return *claim.unsupported_reason;
  if (!rank && !world && names.world.front() == nullptr) return fmt::format("{} is not set", name_of(names.rank));
  if (!rank && !world) return fmt::format("{} and {} are not set", name_of(names.rank), name_of(names.world));
  if (!rank) return fmt::format("{}={} is set but {} is not", world->name, world->value, name_of(names.rank));
  if (!world) return fmt::format("{}={} does not say the world size", rank->name, rank->value);
  return taken == nullptr ? values_text(claim)
                          : fmt::format("{}, but {} comes first", values_text(claim), taken->launcher->name);
}

}  // namespace

std::vector<Source> list_sources(const InitOptions& options, const EnvironmentLookup& lookup) {
  const Inputs inputs(options, lookup);
  const bool from_options = gives_ranks(options);
  std::vector<Source> sources = {
      {"init() options", from_options, from_options ? "rank and world are given" : "none are given"}};
  const Claim* taken = first_claim(inputs.claims);
  if (taken != nullptr && !taken->is_complete()) taken = nullptr;
  for (const Claim& claim : inputs.claims) {
    const bool is_taken = &claim == taken && !from_options;
    sources.push_back({claim.launcher->name, is_taken, is_taken ? values_text(claim) : rejection_reason(claim, taken)});
  }
  const bool alone = taken == nullptr && !from_options;
  sources.push_back({"a single process", alone, alone ? "nothing else says rank and world" : "something else does"});
  return sources;
}

bool on_one_host(const LaunchIdentity& launch) {
  if (!launch.meeting_socket.empty()) return true;
  if (launch.local_world != 0) return launch.local_world == launch.world;
  // Rank 0 may call its own host localhost.
  if (launch.has_own_store) return false;
  const std::string& master = launch.master_address;
  return master == "localhost" || master == "::1" || master.starts_with("127.");
}

}  // namespace qccl::bootstrap
