#include "rendezvous/environment.h"

#include <charconv>
#include <cstdint>
#include <limits>

namespace qccl::rendezvous {
namespace {

// How a launcher tells each process its place. The first row with a rank or a world size wins.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;
  const char* master_address;
  const char* master_port;
  const char* job;
  const char* restart;
  const char* own_store;  // "True": the launcher itself serves a store at the master port
};

constexpr Launcher kLaunchers[] = {
    {"RANK and WORLD_SIZE (torchrun, qccl run)", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
     "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE"},
};

Failure invalid(std::string message) { return Failure(ErrorKind::invalid_argument, std::move(message)); }

struct Limits {
  std::int64_t low;
  std::int64_t high;
};

// A number and the name under which the user gave it.
struct Given {
  std::string name;
  std::int64_t value = 0;
};

Failure out_of_range(const std::string& name, const std::string& value, Limits limits) {
  return invalid(name + " is \"" + value + "\": expected a whole number from " + std::to_string(limits.low) + " to " +
                 std::to_string(limits.high));
}

Result<std::optional<Given>> read_number(const EnvironmentLookup& lookup, const char* name, Limits limits) {
  const auto text = lookup(name);
  if (!text) return std::optional<Given>();
  Given given{name, 0};
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, given.value);
  if (error != std::errc() || stop != end || given.value < limits.low || given.value > limits.high) {
    return out_of_range(name, *text, limits);
  }
  return std::optional<Given>(std::move(given));
}

// The option if the program gave one, else the variable, else nothing.
template <class T>
Result<std::optional<Given>> pick(const std::optional<T>& option, const char* option_name,
                                  const EnvironmentLookup& lookup, const char* variable, Limits limits) {
  if (!option) return read_number(lookup, variable, limits);
  const std::int64_t value = *option;
  const std::string name = std::string("InitOptions::") + option_name;
  if (value < limits.low || value > limits.high) return out_of_range(name, std::to_string(value), limits);
  return std::optional<Given>(Given{name, value});
}

Failure missing(const std::string& present, const std::string& absent) {
  return invalid(present + " is set but " + absent +
                 " is not: set both (torchrun and `qccl run` set all), or none for a single process");
}

const Launcher& launcher_of(const EnvironmentLookup& lookup) {
  for (const Launcher& launcher : kLaunchers) {
    if (lookup(launcher.rank) || lookup(launcher.world)) return launcher;
  }
  return kLaunchers[0];
}

Membership single_process() {
  Membership alone;
  alone.local_rank = 0;
  alone.local_world = 1;
  alone.source = "a single process (no ranks in options or environment)";
  return alone;
}

// Only meaningful beside the launcher's own rank: a program that says its rank itself may have
// been started by something else.
Status read_local(const EnvironmentLookup& lookup, const Launcher& launcher, Membership& membership) {
  auto local_rank = read_number(lookup, launcher.local_rank, {0, membership.world - 1});
  if (!local_rank) return local_rank.failure();
  auto local_world = read_number(lookup, launcher.local_world, {1, membership.world});
  if (!local_world) return local_world.failure();
  if (*local_rank) membership.local_rank = static_cast<int>((*local_rank)->value);
  if (*local_world) membership.local_world = static_cast<int>((*local_world)->value);
  if (*local_rank && *local_world && membership.local_rank >= membership.local_world) {
    return out_of_range(launcher.local_rank, std::to_string(membership.local_rank), {0, membership.local_world - 1});
  }
  return {};
}

Status read_job(const InitOptions& options, const EnvironmentLookup& lookup, const Launcher& launcher,
                Membership& membership) {
  membership.job = options.job;
  if (membership.job.empty()) membership.job = lookup(launcher.job).value_or("default");
  auto restart = read_number(lookup, launcher.restart, {0, std::numeric_limits<std::int32_t>::max()});
  if (!restart) return restart.failure();
  if (*restart) membership.restart = static_cast<std::uint32_t>((*restart)->value);
  return {};
}

// Address and port of the store, and who serves it.
Status read_master(const InitOptions& options, const EnvironmentLookup& lookup, const Launcher& launcher,
                   Membership& membership) {
  auto port = pick(options.master_port, "master_port", lookup, launcher.master_port, {1, 65535});
  if (!port) return port.failure();
  const auto address = options.master_address ? options.master_address : lookup(launcher.master_address);
  membership.master_address = address.value_or("");
  if (*port) membership.master_port = static_cast<std::uint16_t>((*port)->value);
  if (options.store != nullptr || membership.world == 1) return {};
  const std::string world = "the world size is " + std::to_string(membership.world) + " but ";
  if (membership.master_address.empty()) {
    return invalid(world + launcher.master_address + " is not set: set it to rank 0's host name or address");
  }
  if (!*port) return invalid(world + launcher.master_port + " is not set: set it to a free port of rank 0's host");
  const bool from_launcher = !options.master_address && !options.master_port;
  const bool launcher_serves = from_launcher && lookup(launcher.own_store) == "True";
  membership.hosts_store = membership.rank == 0 && !launcher_serves;
  return {};
}

// What is there although neither rank nor world size is; nothing if nothing.
std::optional<std::string> stray_setting(const InitOptions& options, const EnvironmentLookup& lookup,
                                         const Launcher& launcher) {
  if (options.store != nullptr) return "InitOptions::store";
  if (options.master_address) return "InitOptions::master_address";
  if (options.master_port) return "InitOptions::master_port";
  for (const char* name : {launcher.master_address, launcher.master_port, launcher.local_rank, launcher.local_world}) {
    if (lookup(name)) return name;
  }
  return std::nullopt;
}

}  // namespace

Result<Membership> discover_membership(const InitOptions& options, const EnvironmentLookup& lookup) {
  const Launcher& launcher = launcher_of(lookup);
  auto rank = pick(options.rank, "rank", lookup, launcher.rank, {0, kMaxWorld - 1});
  if (!rank) return rank.failure();
  auto world = pick(options.world, "world", lookup, launcher.world, {1, kMaxWorld});
  if (!world) return world.failure();
  if (!*rank && !*world) {
    if (const auto stray = stray_setting(options, lookup, launcher)) return missing(*stray, launcher.rank);
    return single_process();
  }
  if (!*rank) return missing((*world)->name, launcher.rank);
  if (!*world) return missing((*rank)->name, launcher.world);
  if ((*rank)->value >= (*world)->value) {
    return invalid((*rank)->name + " is " + std::to_string((*rank)->value) + " but " + (*world)->name + " is " +
                   std::to_string((*world)->value) + ": ranks count from 0 to the world size - 1");
  }

  Membership membership;
  membership.rank = static_cast<int>((*rank)->value);
  membership.world = static_cast<int>((*world)->value);
  membership.source = options.rank && options.world ? "init() options" : launcher.name;
  if (!options.rank) QCCL_TRY(read_local(lookup, launcher, membership));
  QCCL_TRY(read_job(options, lookup, launcher, membership));
  QCCL_TRY(read_master(options, lookup, launcher, membership));
  return membership;
}

bool on_one_host(const Membership& membership) {
  if (membership.local_world != 0) return membership.local_world == membership.world;
  const std::string& master = membership.master_address;
  return master == "localhost" || master == "::1" || master.starts_with("127.");
}

}  // namespace qccl::rendezvous
