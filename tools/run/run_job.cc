#include "tools/run/run_job.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>

#include "tools/run/process/cores.h"
#include "tools/run/process/process_tree.h"

namespace qccl::tools {
namespace {

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

bool is_set(const Variables& variables, const char* name) {
  return std::getenv(name) != nullptr ||
         std::any_of(variables.begin(), variables.end(), [&](const auto& variable) { return variable.first == name; });
}

}  // namespace

std::optional<int> RunJob::start() {
  if (!options_.log_folder.empty()) {
    if (const auto refused = console_.open_logs(options_.log_folder, options_.ranks)) {
      say(*refused);
      return 1;
    }
  }
  const auto refused = start_ranks();
  if (!refused) return std::nullopt;
  say(refused->message);
  return refused->exit_code;
}

std::optional<StartFailure> RunJob::start_ranks() {
  forget_outer_launcher();
  auto port = ReservedPort::take();
  if (!port) return StartFailure{1, "can't find a free port for MASTER_PORT"};
  port_ = std::move(*port);
  const std::vector<int> cores = options_.bind_to_cores ? usable_cores() : std::vector<int>();
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (auto refused = start_process(spec_of(rank, cores))) {
      kill_descendants(kKillLimit);
      return refused;
    }
    RankProcess& started = processes_.back();
    if (pipes_output()) pipes_.add(rank, std::move(started.output), std::move(started.errors));
  }
  return std::nullopt;
}

RankSpec RunJob::spec_of(int rank, const std::vector<int>& cores) const {
  RankSpec spec;
  spec.rank = rank;
  spec.command = options_.command;
  spec.pipe_output = pipes_output();
  spec.inherit_input = rank == 0;
  spec.environment = options_.variables;
  spec.cores = share_of_cores(cores, rank, options_.ranks);
  // As torchrun: N ranks with a thread per core each would fight for the cores.
  if (!is_set(options_.variables, "OMP_NUM_THREADS")) {
    spec.environment.emplace_back("OMP_NUM_THREADS", std::to_string(std::max<std::size_t>(1, spec.cores.size())));
  }
  const std::string number = std::to_string(rank), ranks = std::to_string(options_.ranks);
  for (const auto& variable : Variables{{"RANK", number},
                                        {"WORLD_SIZE", ranks},
                                        {"LOCAL_RANK", number},
                                        {"LOCAL_WORLD_SIZE", ranks},
                                        {"MASTER_ADDR", "127.0.0.1"},
                                        {"MASTER_PORT", std::to_string(port_.number())}}) {
    spec.environment.push_back(variable);
  }
  return spec;
}

void RunJob::want(std::vector<pollfd>& list) const {
  pipes_.want(list, console_);
  console_.want(list);
}

void RunJob::serve(const std::vector<pollfd>& list) {
  pipes_.serve(list, console_);
  console_.serve(list);
}

void RunJob::on_end(RankProcess& process, pid_t pid, int status) {
  if (terminal_lent_ && process.rank == 0) take_terminal_back(pid);
  if (const int code = exit_code_of(status); code != 0) {
    record_failure(code, fmt::format("rank {} (pid {}) {}", process.rank, pid, what_happened(status)));
  }
}

// A rank 0 that reads from the terminal is stopped by the kernel, as it is not in the terminal's
// foreground group: makes it that, if the keeper has it to give.
void RunJob::lend_terminal() {
  siginfo_t info = {};
  const pid_t reader = processes_.empty() ? -1 : processes_[0].pid;
  if (reader < 0 || ::waitid(P_PID, static_cast<id_t>(reader), &info, WSTOPPED | WNOHANG) != 0) return;
  if (info.si_pid != reader || (info.si_status != SIGTTIN && info.si_status != SIGTTOU)) return;
  if (::tcgetpgrp(STDIN_FILENO) != ::getpgid(keeper())) return;
  terminal_lent_ = ::tcsetpgrp(STDIN_FILENO, reader) == 0;
  if (terminal_lent_) ::kill(-reader, SIGCONT);
}

void RunJob::take_terminal_back(pid_t from) {
  if (::tcgetpgrp(STDIN_FILENO) == from) ::tcsetpgrp(STDIN_FILENO, ::getpgid(keeper()));
}

void RunJob::say(const std::string& text) { console_.add_message(fmt::format("{}: {}\n", options_.program, text)); }

void RunJob::finish() {
  pipes_.finish(console_);
  console_.finish();
}

}  // namespace qccl::tools
