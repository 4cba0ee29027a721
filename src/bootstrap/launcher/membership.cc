#include "bootstrap/launcher/membership.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <limits>

#include "bootstrap/launcher/launchers.h"

namespace qccl::bootstrap {
namespace {

Failure invalid(std::string message) { return Failure(ErrorKind::invalid_argument, std::move(message)); }

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

Failure out_of_range(const std::string& name, const std::string& value, Limits limits) {
  return invalid(name + " is \"" + value + "\": expected a whole number from " + std::to_string(limits.low) + " to " +
                 std::to_string(limits.high));
}

Result<std::optional<Given>> read_number(const EnvironmentLookup& lookup, const Names& names, Limits limits) {
  const auto variable = first_set(lookup, names);
  if (!variable) return std::optional<Given>();
  const auto& [name, text] = *variable;
  Given given{name, 0};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, given.value);
  if (error != std::errc() || stop != end || given.value < limits.low || given.value > limits.high) {
    return out_of_range(name, text, limits);
  }
  return std::optional<Given>(std::move(given));
}

// The option if the program set it, else the variable, else nothing.
template <class T>
Result<std::optional<Given>> pick(const std::optional<T>& option, const char* option_name,
                                  const EnvironmentLookup& lookup, const Names& variables, Limits limits) {
  if (!option) return read_number(lookup, variables, limits);
  const std::int64_t value = *option;
  const std::string name = std::string("InitOptions::") + option_name;
  if (value < limits.low || value > limits.high) return out_of_range(name, std::to_string(value), limits);
  return std::optional<Given>(Given{name, value});
}

Failure missing(const std::string& present, const std::string& absent) {
  return invalid(present + " is set but " + absent +
                 " is not: set both (torchrun and `qccl run` set all), or none for a single process");
}

// ---- which variables count

// How much of rank and world a launcher's variables give for this process.
enum class Presence : std::uint8_t { none, half, complete };

Presence presence_of(const Launcher& launcher, const EnvironmentLookup& lookup) {
  if (launcher.unsupported_reason(lookup)) return Presence::none;
  const bool rank = first_set(lookup, launcher.rank).has_value();
  const bool world = first_set(lookup, launcher.world).has_value();
  if (rank && world) return Presence::complete;
  return rank || world ? Presence::half : Presence::none;
}

// The first launcher that gives rank and world, else the first that gives one of them.
const Launcher* launcher_of(const EnvironmentLookup& lookup) {
  const Launcher* half = nullptr;
  for (const Launcher& launcher : launchers()) {
    const Presence presence = presence_of(launcher, lookup);
    if (presence == Presence::complete) return &launcher;
    if (presence == Presence::half && half == nullptr) half = &launcher;
  }
  return half;
}

// A launcher's rank and world, as far as they are numbers; empty if the launcher gives none.
struct Claim {
  std::optional<Given> rank;
  std::optional<Given> world;
};

Claim claim_of(const Launcher& launcher, const EnvironmentLookup& lookup) {
  Claim claim;
  if (presence_of(launcher, lookup) == Presence::none) return claim;
  if (auto rank = read_number(lookup, launcher.rank, kRanks); rank.ok()) claim.rank = std::move(*rank);
  if (auto world = read_number(lookup, launcher.world, kWorlds); world.ok()) claim.world = std::move(*world);
  return claim;
}

bool differs(const std::optional<Given>& given, std::int64_t value) { return given && given->value != value; }

bool agrees(const Claim& claim, std::int64_t rank, std::int64_t world) {
  return claim.rank && claim.world && claim.rank->value == rank && claim.world->value == world;
}

// Whether `outer` may have started the launcher `inner` that started this process: srun starts an mpirun or a torchrun
// on each node, or a program starts its own processes.
bool may_be_outer(const Launcher& outer, const Launcher& inner, const Claim& claim, const Membership& own,
                  const EnvironmentLookup& lookup) {
  if (lookup("TORCHELASTIC_RUN_ID") && &inner == &launchers().front()) return true;
  const bool inner_is_mpi = &inner != &launchers().front();
  if (inner_is_mpi && (std::string_view(outer.name) == "Slurm" || lookup("SLURM_STEP_ID"))) return true;
  if (inner_is_mpi || !claim.rank || !claim.world) return false;
  const auto ranks_each = own.world / claim.world->value;
  return ranks_each > 1 && own.world % claim.world->value == 0 && own.rank / ranks_each == claim.rank->value;
}

Failure contradiction(const Given& one, std::int64_t value, const Given& other, const Launcher& launcher) {
  return invalid(fmt::format("{} is {} but {} is {}, from {}: one of them is left from something else; unset it",
                             one.name, value, other.name, other.value, launcher.words));
}

// Rank and world were read from `taken`: checks that no other launcher contradicts them.
Status check_others(const Launcher& taken, const EnvironmentLookup& lookup, const Given& rank, const Given& world,
                    const Membership& own) {
  for (const Launcher& other : launchers()) {
    if (&other == &taken) continue;
    const Claim claim = claim_of(other, lookup);
    if (!differs(claim.rank, own.rank) && !differs(claim.world, own.world)) continue;
    if (may_be_outer(other, taken, claim, own, lookup)) continue;
    if (differs(claim.rank, own.rank)) return contradiction(rank, own.rank, *claim.rank, other);
    return contradiction(world, own.world, *claim.world, other);
  }
  return {};
}

// ---- the rest of a membership

Membership single_process() {
  Membership alone;
  alone.local_rank = 0;
  alone.local_world = 1;
  alone.source = "a single process (no ranks in options or environment)";
  return alone;
}

// Reads only launchers that give the same rank and world: a program that sets its own rank may have been started by
// some other launcher.
Status read_local(const EnvironmentLookup& lookup, Membership& membership) {
  std::optional<Given> local_rank;
  for (const Launcher& launcher : launchers()) {
    if (!agrees(claim_of(launcher, lookup), membership.rank, membership.world)) continue;
    auto rank = read_number(lookup, launcher.local_rank, {0, membership.world - 1});
    if (!rank) return rank.failure();
    auto world = read_number(lookup, launcher.local_world, {1, membership.world});
    if (!world) return world.failure();
    if (*rank && local_rank && (*rank)->value != local_rank->value) {
      return contradiction(*local_rank, local_rank->value, **rank, launcher);
    }
    if (*rank) local_rank = std::move(*rank);
    if (*world && membership.local_world == 0) membership.local_world = static_cast<int>((*world)->value);
  }
  if (!local_rank) return {};
  membership.local_rank = static_cast<int>(local_rank->value);
  if (membership.local_world == 0 || membership.local_rank < membership.local_world) return {};
  return out_of_range(local_rank->name, std::to_string(membership.local_rank), {0, membership.local_world - 1});
}

// Checks a lone LOCAL_RANK against the launcher's local rank.
Status check_local_rank(const EnvironmentLookup& lookup, const Launcher& taken, const Membership& membership) {
  const auto local_rank = read_number(lookup, launchers().front().local_rank, kRanks);
  if (!local_rank.ok() || !local_rank.value() || membership.local_rank < 0 || &taken == &launchers().front()) return {};
  if (local_rank.value()->value == membership.local_rank) return {};
  const auto own = first_set(lookup, taken.local_rank);
  if (!own) return {};
  return contradiction({own->name, 0}, membership.local_rank, *local_rank.value(), launchers().front());
}

Status read_job(const InitOptions& options, const EnvironmentLookup& lookup, Membership& membership) {
  membership.job = options.job;
  if (membership.job.empty()) membership.job = lookup("TORCHELASTIC_RUN_ID").value_or("default");
  auto restart = read_number(lookup, {"TORCHELASTIC_RESTART_COUNT"}, {0, std::numeric_limits<std::int32_t>::max()});
  if (!restart) return restart.failure();
  if (*restart) membership.restart = static_cast<std::uint32_t>((*restart)->value);
  return {};
}

void read_filter(const EnvironmentLookup& lookup, Membership& membership) {
  auto filter = first_set(lookup, {"QCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"});
  for (const Launcher& launcher : launchers()) {
    const bool counts = !on_one_host(membership) && presence_of(launcher, lookup) == Presence::complete;
    if (!filter && counts) filter = launcher.interfaces(lookup);
  }
  if (!filter) return;
  membership.interface_filter = filter->value;
  membership.filter_source = filter->name;
}

// Fills in what else the launchers of this rank and world provide. Sets `advice` to the remedy if that is not enough.
Status ask_launchers(const EnvironmentLookup& lookup, Membership& membership, std::string& advice) {
  for (const Launcher& launcher : launchers()) {
    if (!agrees(claim_of(launcher, lookup), membership.rank, membership.world)) continue;
    advice = launcher.how_to_set_master;
    const Status asked = launcher.complete(lookup, membership);
    if (!asked.ok()) return invalid(fmt::format("{}; {}", asked.error().message, advice));
    if (!membership.meeting_socket.empty() || membership.pmi_descriptor >= 0) return {};
  }
  return {};
}

// Reads address and port of the store, and which rank serves it.
Status read_master(const InitOptions& options, const EnvironmentLookup& lookup, Membership& membership) {
  auto port = pick(options.master_port, "master_port", lookup, {"MASTER_PORT"}, {1, 65535});
  if (!port) return port.failure();
  const auto address = options.master_address ? options.master_address : lookup("MASTER_ADDR");
  membership.master_address = address.value_or("");
  if (*port) membership.master_port = static_cast<std::uint16_t>((*port)->value);
  if (options.store != nullptr || membership.world == 1) return {};
  const bool given = address && *port;
  std::string advice = launchers().front().how_to_set_master;
  QCCL_TRY(ask_launchers(lookup, membership, advice));
  const bool no_address_needed = !membership.meeting_socket.empty() || membership.pmi_descriptor >= 0;
  if (!no_address_needed && (membership.master_address.empty() || membership.master_port == 0)) {
    return invalid(fmt::format("the world size is {} but {} is not set: {}", membership.world,
                               membership.master_address.empty() ? "MASTER_ADDR" : "MASTER_PORT", advice));
  }
  const bool from_variables = given && !options.master_address && !options.master_port;
  const bool launcher_serves = from_variables && lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
  membership.hosts_store = membership.rank == 0 && !launcher_serves;
  return {};
}

// A setting that is present although rank and world size are not; empty if there is none.
std::optional<std::string> stray_setting(const InitOptions& options, const EnvironmentLookup& lookup) {
  if (options.store != nullptr) return "InitOptions::store";
  if (options.master_address) return "InitOptions::master_address";
  if (options.master_port) return "InitOptions::master_port";
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (lookup(name)) return name;
  }
  return std::nullopt;
}

const char* name_of(const Names& names) { return names.front() == nullptr ? "the world size" : names.front(); }

}  // namespace

Result<Membership> discover_membership(const InitOptions& options, const EnvironmentLookup& lookup) {
  const Launcher* found = launcher_of(lookup);
  const Launcher& launcher = found == nullptr ? launchers().front() : *found;
  const bool reads = found != nullptr;
  auto rank = pick(options.rank, "rank", lookup, reads ? launcher.rank : Names{}, kRanks);
  if (!rank) return rank.failure();
  auto world = pick(options.world, "world", lookup, reads ? launcher.world : Names{}, kWorlds);
  if (!world) return world.failure();
  if (!*rank && !*world) {
    if (const auto stray = stray_setting(options, lookup)) return missing(*stray, name_of(launcher.rank));
    Membership alone = single_process();
    read_filter(lookup, alone);
    return alone;
  }
  if (!*rank) return missing((*world)->name, name_of(launcher.rank));
  if (!*world) return missing((*rank)->name, name_of(launcher.world));
  if ((*rank)->value >= (*world)->value) {
    return invalid((*rank)->name + " is " + std::to_string((*rank)->value) + " but " + (*world)->name + " is " +
                   std::to_string((*world)->value) + ": ranks count from 0 to the world size - 1");
  }

  Membership membership;
  membership.rank = static_cast<int>((*rank)->value);
  membership.world = static_cast<int>((*world)->value);
  const bool explicit_place = options.rank && options.world;
  membership.source = explicit_place ? "init() options" : launcher.words;
  if (!explicit_place) QCCL_TRY(check_others(launcher, lookup, **rank, **world, membership));
  QCCL_TRY(read_local(lookup, membership));
  if (!explicit_place) QCCL_TRY(check_local_rank(lookup, launcher, membership));
  QCCL_TRY(read_job(options, lookup, membership));
  QCCL_TRY(read_master(options, lookup, membership));
  read_filter(lookup, membership);
  return membership;
}

namespace {

std::string names_text(const Names& first, const Names& second) {
  std::string text = name_of(first);
  if (second.front() != nullptr) text += std::string(" and ") + second.front();
  return text;
}

std::string values_text(const Launcher& launcher, const EnvironmentLookup& lookup) {
  std::string text;
  for (const Names* names : {&launcher.rank, &launcher.world}) {
    if (const auto variable = first_set(lookup, *names)) {
      text += fmt::format("{}{}={}", text.empty() ? "" : ", ", variable->name, variable->value);
    }
  }
  return text;
}

std::string unsupported_reason(const Launcher& launcher, const EnvironmentLookup& lookup, const Launcher* taken) {
  if (auto reason = launcher.unsupported_reason(lookup)) return *reason;
  const auto rank = first_set(lookup, launcher.rank);
  const auto world = first_set(lookup, launcher.world);
  if (!rank && !world)
    return names_text(launcher.rank, launcher.world) + (launcher.world[0] ? " are" : " is") + " not set";
  if (!rank) return fmt::format("{}={} is set but {} is not", world->name, world->value, name_of(launcher.rank));
  if (!world) return fmt::format("{}={} does not say the world size", rank->name, rank->value);
  const std::string values = values_text(launcher, lookup);
  return taken == nullptr ? values : fmt::format("{}, but {} comes first", values, taken->name);
}

}  // namespace

std::vector<Source> list_sources(const InitOptions& options, const EnvironmentLookup& lookup) {
  std::vector<Source> sources;
  const bool explicit_place = options.rank && options.world;
  sources.push_back({"init() options", explicit_place, explicit_place ? "rank and world are given" : "none are given"});
  const Launcher* taken = launcher_of(lookup);
  if (taken != nullptr && presence_of(*taken, lookup) != Presence::complete) taken = nullptr;
  for (const Launcher& launcher : launchers()) {
    const bool is_taken = &launcher == taken && !explicit_place;
    const std::string reason = is_taken ? values_text(launcher, lookup) : unsupported_reason(launcher, lookup, taken);
    sources.push_back({launcher.name, is_taken, reason});
  }
  const bool alone = taken == nullptr && !explicit_place;
  sources.push_back({"a single process", alone, alone ? "nothing else says rank and world" : "something else does"});
  return sources;
}

bool on_one_host(const Membership& membership) {
  if (!membership.meeting_socket.empty()) return true;
  if (membership.local_world != 0) return membership.local_world == membership.world;
  const std::string& master = membership.master_address;
  return master == "localhost" || master == "::1" || master.starts_with("127.");
}

}  // namespace qccl::bootstrap
