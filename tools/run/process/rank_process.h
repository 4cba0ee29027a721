// Starts one rank: a program in its own process group that dies with its launcher.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "os/fd.h"
#include "tools/run/process/signals.h"

namespace qccl::tools {

using Variables = std::vector<std::pair<std::string, std::string>>;

struct RankSpec {
  int rank = 0;
  std::vector<std::string> command;  // program (looked up in PATH) and arguments
  Variables environment;             // added to the launcher's own
  bool pipe_output = false;          // else the launcher's stdout and stderr
  bool inherit_input = false;        // else /dev/null
  std::vector<int> cores;            // to run on; empty: all that the launcher may use
};

struct RankProcess {
  int rank = 0;
  pid_t pid = -1;  // and its process group
  os::Fd pidfd;    // readable when the process has ended
  os::Fd output;   // this and `errors`: the read ends of the pipes, non-blocking
  os::Fd errors;
};

// Why a program could not be started.
struct StartFailure {
  int exit_code = 1;  // 127: no such program; 126: not executable; 1: the system refused
  std::string message;
};

// Returns once the program runs, or returns why it does not; then no process is left.
// Single-threaded callers only.
std::optional<StartFailure> start_rank(const RankSpec& spec, const BlockedSignals& signals, RankProcess& started);

}  // namespace qccl::tools
