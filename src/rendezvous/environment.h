// Who this process is in its job: rank, world size and where the others can be met.
//
// Tried in this order, and the result says which it took: what the program passed to init(), the
// variables of a launcher (one row each in the table of environment.cc), a single process.
// A value that is there but wrong is an error, and so is half a set: running alone where eight
// ranks were meant would be silently wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "qccl/communicator.h"

namespace qccl::rendezvous {

// Every rank keeps a connection to every other.
inline constexpr int kMaxWorld = 1024;

struct Membership {
  int rank = 0;
  int world = 1;
  int local_rank = -1;            // -1: not known
  int local_world = 0;            // ranks on this host; 0: not known
  std::string master_address;     // name or number; empty if not known (own store, single process)
  std::uint16_t master_port = 0;  // of the store
  bool hosts_store = false;       // this process serves the store at master_port
  std::string job = "default";    // ranks of different jobs on one store do not meet
  std::uint32_t restart = 0;      // how often the launcher has restarted this job
  std::string source;             // what it was taken from, for people
};

// Reads a variable; nothing if unset or empty. base/environment.h has the real one.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

// InvalidArgument names the variable or option and its value, or the one that is missing.
Result<Membership> discover_membership(const InitOptions& options, const EnvironmentLookup& lookup);

// True where no rank can be on another host: addresses then need not leave this one.
bool on_one_host(const Membership& membership);

}  // namespace qccl::rendezvous
