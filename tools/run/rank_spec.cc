#include "tools/run/launcher.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <tuple>

namespace qccl::tools {
namespace {

// Returns 0 if the system does not provide the value.
int topology(int cpu, const char* what) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", cpu, what));
  int number = 0;
  return file >> number ? number : 0;
}

RankSpec rank_spec(const LaunchOptions& options, int rank, int master_port, const std::vector<int>& cores) {
  RankSpec spec;
  spec.rank = rank;
  spec.command = options.command;
  spec.pipe_output = options.tag_output || !options.log_folder.empty();
  spec.inherit_input = rank == 0;
  spec.cores = share_of_cores(cores, rank, options.ranks);
  const std::string number = std::to_string(rank), ranks = std::to_string(options.ranks);
  spec.environment = {{"RANK", number},
                      {"WORLD_SIZE", ranks},
                      {"LOCAL_RANK", number},
                      {"LOCAL_WORLD_SIZE", ranks},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", std::to_string(master_port)}};
  // Like torchrun: N ranks with one thread per core each would compete for the cores.
  if (!is_set(options.variables, "OMP_NUM_THREADS")) {
    spec.environment.emplace_back("OMP_NUM_THREADS", std::to_string(std::max<std::size_t>(1, spec.cores.size())));
  }
  spec.environment.insert(spec.environment.end(), options.variables.begin(), options.variables.end());
  return spec;
}

}  // namespace

bool is_set(const Variables& variables, const char* name) {
  return std::getenv(name) != nullptr ||
         std::any_of(variables.begin(), variables.end(), [&](const auto& variable) { return variable.first == name; });
}

std::vector<int> usable_cores() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  ::sched_getaffinity(0, sizeof(usable), &usable);
  std::vector<std::tuple<int, int, int>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    cores.emplace_back(topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu);
  }
  std::sort(cores.begin(), cores.end());
  std::vector<int> sorted;
  for (const auto& [socket, core, cpu] : cores) sorted.push_back(cpu);
  return sorted;
}

std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world) {
  const int count = static_cast<int>(cores.size());
  if (count == 0) return {};
  if (count < local_world) return {cores[static_cast<std::size_t>(local_rank % count)]};
  return {cores.begin() + local_rank * count / local_world, cores.begin() + (local_rank + 1) * count / local_world};
}

void forget_outer_launcher() {
  for (const char* name : {"TORCHELASTIC_USE_AGENT_STORE",
                           "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_RESTART_COUNT",
                           "TORCHELASTIC_MAX_RESTARTS",
                           "GROUP_RANK",
                           "GROUP_WORLD_SIZE",
                           "ROLE_RANK",
                           "ROLE_WORLD_SIZE",
                           "ROLE_NAME",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "PMI_RANK",
                           "PMI_SIZE",
                           "PMIX_RANK",
                           "MPI_LOCALRANKID",
                           "MPI_LOCALNRANKS",
                           "SLURM_PROCID",
                           "SLURM_LOCALID"}) {
    ::unsetenv(name);
  }
}

std::vector<RankSpec> rank_specs(const LaunchOptions& options, int master_port) {
  const std::vector<int> cores = options.bind_to_cores ? usable_cores() : std::vector<int>();
  std::vector<RankSpec> specs;
  for (int rank = 0; rank < options.ranks; ++rank) specs.push_back(rank_spec(options, rank, master_port, cores));
  return specs;
}

}  // namespace qccl::tools
