// The signals that the launcher passes on, and how it blocks them while it runs.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace qccl::tools {

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

}  // namespace qccl::tools
