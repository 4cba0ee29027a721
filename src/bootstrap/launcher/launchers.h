// The table of launchers: what each tells the processes that it starts. docs/launchers.md is the same for users. And
// Slurm's short notation for many hosts and the number of tasks on each (node_list.cc).
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bootstrap/launcher/launch_identity.h"

namespace qccl::bootstrap {

struct Variable {
  std::string name;
  std::string value;
};

inline Failure invalid(std::string message) { return Failure(ErrorKind::invalid_argument, std::move(message)); }

// Variables with the same meaning; the first that is set counts. Null: no more.
using VariableNames = std::array<const char*, 3>;
std::optional<Variable> first_set(const EnvironmentLookup& lookup, const VariableNames& names);
// The variable that says which interfaces this process may use (LaunchIdentity::interface_filter). With QCCL in gloo's
// place (QCCL_REPLACE) gloo's counts, in the filter's form.
std::optional<Variable> find_interface_filter(const EnvironmentLookup& lookup);

struct RankVariables {
  VariableNames rank, world, local_rank, local_world;
};

struct Launcher {
  const char* name;         // "Open MPI"
  const char* description;  // for messages: "Open MPI (mpirun)"
  RankVariables variables;
  const char* how_to_set_master;  // for messages

  // Why these variables do not describe this process, even if they are set; empty if they do. Null: they always do.
  std::optional<std::string> (*unsupported_reason)(const EnvironmentLookup&) = nullptr;
  // Fills in values that MASTER_ADDR, MASTER_PORT and the variables above left open, as far as the launcher provides
  // them. Rank and world are set. InvalidArgument: the launcher's values cannot be used. Null: it provides none.
  Status (*complete)(const EnvironmentLookup&, LaunchIdentity&) = nullptr;
  // The launcher's choice of interfaces between hosts, if the user makes none, with the name of its source.
  std::optional<Variable> (*interfaces)(const EnvironmentLookup&) = nullptr;
  // The variables number nodes, each of which may have several ranks: they are a rank only if nothing else gives one.
  bool counts_nodes = false;
};

// In the order in which they are tried. The first is that of RANK and WORLD_SIZE.
std::span<const Launcher> launchers();

// Variables that show a launch of several processes without giving this one a rank: one numbers it or its host, and one
// counts them.
struct LaunchSign {
  const char* index;
  const char* count;
};
std::span<const LaunchSign> launch_signs();

// More nodes than any job has.
inline constexpr std::size_t kMaxNodes = 65536;

// "node[01-03,7],gpu1" becomes node01 node02 node03 node7 gpu1, in written order; several brackets in a name multiply,
// the last one fastest. Numbers keep their leading zeros. InvalidArgument names the unreadable part.
Result<std::vector<std::string>> expand_node_list(std::string_view list);

// "4(x2),3" becomes 4 4 3: tasks per node.
Result<std::vector<int>> expand_task_counts(std::string_view list);

}  // namespace qccl::bootstrap
