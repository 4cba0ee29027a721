#include "tools/run/local_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tools/run/process/cores.h"
#include "tools/run/process/process_tree.h"

namespace qccl::tools {
namespace {

constexpr std::chrono::milliseconds kKillLimit{10'000};
constexpr std::chrono::milliseconds kKillAgain{50};  // for what was forked during the first round

// What another launcher around this one told its own processes and these ranks must not believe.
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

bool is_set(const JobPart& part, const char* name) {
  for (const auto& [own, value] : part.variables) {
    if (own == name) return true;
  }
  return std::getenv(name) != nullptr;
}

}  // namespace

RankSpec LocalJob::spec_of(int local_rank, const JobPart& part, const Wiring& wiring, const std::vector<int>& cores) {
  RankSpec spec;
  spec.rank = part.first_rank + local_rank;
  spec.command = part.command;
  spec.pipe_output = wiring.pipe_output;
  spec.pipe_errors = wiring.pipe_output;
  spec.input = spec.rank == 0 ? wiring.first_input : Input::none;
  spec.environment = part.variables;
  spec.cores = share_of_cores(cores, local_rank, part.ranks);
  // As torchrun: N ranks with a thread per core each would fight for the cores.
  if (!is_set(part, "OMP_NUM_THREADS")) {
    spec.environment.emplace_back("OMP_NUM_THREADS", std::to_string(std::max<std::size_t>(1, spec.cores.size())));
  }
  for (const auto& [name, value] : Variables{{"RANK", std::to_string(spec.rank)},
                                             {"WORLD_SIZE", std::to_string(part.world)},
                                             {"LOCAL_RANK", std::to_string(local_rank)},
                                             {"LOCAL_WORLD_SIZE", std::to_string(part.ranks)},
                                             {"MASTER_ADDR", part.master_address},
                                             {"MASTER_PORT", std::to_string(part.master_port)}}) {
    spec.environment.emplace_back(name, value);
  }
  return spec;
}

std::optional<StartFailure> LocalJob::start_ranks(JobPart& part, const Wiring& wiring) {
  forget_outer_launcher();
  if (!part.folder.empty() && ::chdir(part.folder.c_str()) != 0) {
    return StartFailure{1, fmt::format("can't run in the folder '{}': {}", part.folder, std::strerror(errno))};
  }
  if (part.master_port == 0) {
    auto port = ReservedPort::take();
    if (!port) return StartFailure{1, "can't find a free port for MASTER_PORT"};
    port_ = std::move(*port);
    part.master_port = port_.number();
  }
  const std::vector<int> cores = part.bind_to_cores ? usable_cores() : std::vector<int>();
  for (int local_rank = 0; local_rank < part.ranks; ++local_rank) {
    if (auto refused = start_process(spec_of(local_rank, part, wiring, cores))) {
      kill_descendants(kKillLimit);
      return refused;
    }
    RankProcess& started = processes_.back();
    if (wiring.pipe_output) pipes_.add(started.rank, std::move(started.output), std::move(started.errors));
  }
  return std::nullopt;
}

std::vector<int> LocalJob::live_ranks() const {
  std::vector<int> live;
  for (const RankProcess& process : processes_) {
    if (process.pid > 0) live.push_back(process.rank);
  }
  return live;
}

void LocalJob::pass_on(int signal, bool all) {
  signal_processes(signal);
  if (all) signal_descendants(signal);
}

std::chrono::milliseconds LocalJob::kill_all() {
  signal_processes(SIGKILL);
  for (const pid_t pid : descendants()) ::kill(pid, SIGKILL);
  return kKillAgain;
}

}  // namespace qccl::tools
