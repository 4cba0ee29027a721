// Starts one rank, a program in its own process group that dies with its launcher. Also the signals that the launcher
// passes on, and the processes below it.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "os/fd.h"

namespace qccl::tools {

// ---- The signals that the launcher passes on, and how it blocks them while it runs

// Signals that ask the job to end; a second one ends it at once.
bool asks_to_end(int signal);

// "SIGTERM", or "signal 42" for those without a name.
std::string signal_name(int signal);

// Blocks the forwarded signals, so that they are read instead (sigwaitinfo, signalfd). Signals that
// the caller ignores (nohup, a shell's background job) stay ignored. Lives as long as the launcher;
// restore() is for a child before exec.
class BlockedSignals {
 public:
  BlockedSignals();
  // The forwarded signals and SIGCHLD.
  const sigset_t& readable() const { return readable_; }
  // Gives the calling process the mask and the SIGPIPE handling the program was started with.
  void restore() const;

 private:
  sigset_t readable_;
  sigset_t original_mask_;
  struct sigaction original_pipe_;
};

// ---- The descendants of this process. A process may leave its group and session, but not its ancestors as long as
// those are subreapers.

// Orphans among this process's descendants become its children instead of init's.
void adopt_orphans();

// Every process below this one, zombies included.
std::vector<pid_t> descendants();

// Sends SIGKILL to all descendants, and again to those they started meanwhile, and reaps them.
// Returns false if some still exist after 10 s (a process blocked in the kernel can't die).
// SIGCHLD must be blocked.
bool kill_descendants();

// ---- Ranks

using Variables = std::vector<std::pair<std::string, std::string>>;

struct RankSpec {
  int rank = 0;
  std::vector<std::string> command;  // program (looked up in PATH) and arguments
  Variables environment;             // added to the launcher's own; the last of a name counts
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

// A descriptor that is readable once the process has ended; invalid on Linux older than 5.3.
os::Fd watch_process(pid_t pid);

// Returns once the program runs, or returns why it does not; then no process is left.
// Single-threaded callers only.
std::optional<StartFailure> start_rank(const RankSpec& spec, const BlockedSignals& signals, RankProcess& started);

}  // namespace qccl::tools
