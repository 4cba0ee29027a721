// Who this process is in its job: rank, world size and where the others can be met.
//
// Tried in this order, and the result says which it took: what the program passed to init(), the
// variables of a launcher (one row each in the table of launchers.cc), a single process.
// A value that is there but wrong is an error, so is half a set, and so are two launchers that
// contradict each other: running alone where eight ranks were meant would be silently wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "qccl/communicator.h"

namespace qccl::bootstrap {

// Every rank keeps a connection to every other.
inline constexpr int kMaxWorld = 1024;

struct Membership {
  int rank = 0;
  int world = 1;
  int local_rank = -1;            // -1: not known
  int local_world = 0;            // ranks on this host; 0: not known
  std::string master_address;     // name or number; empty: own store, single process, or one of the two below
  std::uint16_t master_port = 0;  // of the store
  std::string meeting_socket;     // not empty: the store is at this abstract unix socket; all ranks are on one host
  int pmi_descriptor = -1;        // else: ranks learn address and port through the launcher (bootstrap/launcher/pmi.h)
  std::string own_name;           // under which the launcher says that others reach this host; may be empty
  bool hosts_store = false;       // this process serves the store
  bool master_is_guess = false;   // the address is where the launcher runs: rank 0 must be there, too
  std::string job = "default";    // ranks of different jobs on one store do not meet
  std::uint32_t restart = 0;      // how often the launcher has restarted this job
  std::string interface_filter;   // os::interface_matches(); empty: every interface
  std::string filter_source;      // the variable that gave it
  std::string source;             // what rank and world were taken from, for people
};

// Reads a variable; nothing if unset or empty. base/environment.h has the real one.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

// Talks to nobody. InvalidArgument names the variable or option and its value, or the one that is
// missing, or the two that contradict each other.
Result<Membership> discover_membership(const InitOptions& options, const EnvironmentLookup& lookup);

// A place where rank and world could come from, in the order in which they are tried.
struct Source {
  std::string name;    // "torchrun", "Open MPI"
  bool taken = false;  // at most one
  std::string reason;  // its variables if it was taken, else why not
};
std::vector<Source> list_sources(const InitOptions& options, const EnvironmentLookup& lookup);

// True where no rank can be on another host: addresses then need not leave this one.
bool on_one_host(const Membership& membership);

}  // namespace qccl::bootstrap
