// The table of launchers: what each tells the processes that it starts. docs/launchers.md is the same for users.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "bootstrap/launcher/membership.h"

namespace qccl::bootstrap {

// Variables with the same meaning; the first that is set counts. Null: no more.
using Names = std::array<const char*, 3>;

struct Variable {
  std::string name;
  std::string value;
};

struct Launcher {
  const char* name;   // "Open MPI"
  const char* words;  // for messages: "Open MPI (mpirun)"
  // Why the variables below do not describe this process, whatever they hold; empty if they do when set.
  std::optional<std::string> (*unsupported_reason)(const EnvironmentLookup&);
  Names rank;
  Names world;
  Names local_rank;
  Names local_world;
  // Fills in values that MASTER_ADDR, MASTER_PORT and the variables above left open, as far as the launcher provides
  // them. Rank and world are set. InvalidArgument: the launcher's values cannot be used.
  Status (*complete)(const EnvironmentLookup&, Membership&);
  // The launcher's choice of interfaces between hosts, if the user makes none, with the name of its source.
  std::optional<Variable> (*interfaces)(const EnvironmentLookup&);
  const char* how_to_set_master;  // for messages
};

// In the order in which they are tried. The first is that of RANK and WORLD_SIZE.
std::span<const Launcher> launchers();

// The first of `names` that is set.
std::optional<Variable> first_set(const EnvironmentLookup& lookup, const Names& names);

}  // namespace qccl::bootstrap
