// What each launcher tells the processes that it starts: the one table of it.
//
// docs/launchers.md is the same for users.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "bootstrap/launcher/environment.h"

namespace qccl::bootstrap {

// Variables with one meaning; the first that is set counts. Null: no more.
using Names = std::array<const char*, 3>;

struct Variable {
  std::string name;
  std::string value;
};

struct Launcher {
  const char* name;   // "Open MPI"
  const char* words;  // for messages: "Open MPI (mpirun)"
  // Why this process's place is not in the variables below, whatever they hold; nothing: it is if they are set.
  std::optional<std::string> (*why_not)(const EnvironmentLookup&);
  Names rank;
  Names world;
  Names local_rank;
  Names local_world;
  // Fills in what MASTER_ADDR, MASTER_PORT and the variables above left open, as far as the launcher tells it.
  // Rank and world are set. InvalidArgument: what it tells can't be used.
  Status (*complete)(const EnvironmentLookup&, Membership&);
  // Which interfaces it wants used between hosts where the user says nothing, and what says so.
  std::optional<Variable> (*interfaces)(const EnvironmentLookup&);
  const char* how_to_set_master;  // for messages
};

// In the order in which they are asked. The first is that of RANK and WORLD_SIZE.
std::span<const Launcher> launchers();

// The first of them that is set.
std::optional<Variable> first_set(const EnvironmentLookup& lookup, const Names& names);

}  // namespace qccl::bootstrap
