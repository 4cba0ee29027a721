// The identity of this process in its job: rank, world size and where to meet the other ranks.
//
// Sources, in this order: the arguments of init(), the variables of a launcher (one row each in the table of
// launchers.cc), a single process. The result names its source. It is an error if a value is wrong, if half of a set is
// missing, or if two launchers contradict each other: running alone in place of eight ranks would be silently wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "qccl/communicator.h"

namespace qccl::bootstrap {

// Every rank keeps a connection to every other rank.
inline constexpr int kMaxWorld = 1024;

struct LaunchIdentity {
  int rank = 0;
  int world = 1;
  int local_rank = -1;             // -1: unknown
  int local_world = 0;             // ranks on this host; 0: unknown
  std::string master_address{};    // name or number; empty: own store, single process, or one of the two below
  bool has_own_store = false;      // the program's: master_address only hints at the interface to use, if it is there
  std::uint16_t master_port = 0;   // of the store
  std::string meeting_socket{};    // not empty: the store is at this abstract unix socket; all ranks are on one host
  int pmi_descriptor = -1;         // else: ranks learn address and port through the launcher (bootstrap/launcher/pmi.h)
  std::string own_name{};          // name of this host for the other ranks, as the launcher gives it; may be empty
  bool hosts_store = false;        // this process serves the store
  bool launcher_serves = false;    // the launcher does, torchrun for example: the store is torch's
  bool master_is_guess = false;    // the address is the launcher's own host: rank 0 must be there, too
  std::string job = "default";     // separates the ranks of different jobs on one store
  std::uint32_t restart = 0;       // how often the launcher has restarted this job
  std::string interface_filter{};  // os::interface_matches(); empty: every interface
  std::string filter_source{};     // the variable that gave it
  std::string source{};            // where rank and world came from, for people
};

// Reads a variable; empty if it is unset or empty. environment() of base/options.h is the real one.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

// Contacts no peer. InvalidArgument names the variable or option and its value, or the missing one, or the two that
// contradict each other.
Result<LaunchIdentity> discover_identity(const InitOptions& options, const EnvironmentLookup& lookup);

// Where the store is in which a job began, for a process that is not one of its ranks: job, restart, address, port and
// launcher_serves. InvalidArgument if neither options nor variables name it. Options without a store.
Result<LaunchIdentity> discover_store(const InitOptions& options, const EnvironmentLookup& lookup);

// A possible source of rank and world, in the order in which they are tried.
struct Source {
  std::string name;    // "torchrun", "Open MPI"
  bool taken = false;  // at most one is
  std::string reason;  // its variables if it was taken, else why it was not
};
std::vector<Source> list_sources(const InitOptions& options, const EnvironmentLookup& lookup);

// True if no rank can be on another host, so that addresses need not be reachable from outside.
bool on_one_host(const LaunchIdentity& launch);

}  // namespace qccl::bootstrap
