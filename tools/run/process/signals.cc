#include "tools/run/process/signals.h"

#include <fmt/format.h>

#include <cstring>

namespace qccl::tools {
namespace {

constexpr int kForwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGALRM, SIGWINCH};

bool is_ignored(int signal) {
  struct sigaction action;
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

bool asks_to_end(int signal) { return signal == SIGHUP || signal == SIGINT || signal == SIGQUIT || signal == SIGTERM; }

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

BlockedSignals::BlockedSignals() {
  ::sigemptyset(&readable_);
  ::sigaddset(&readable_, SIGCHLD);
  for (const int signal : kForwarded) {
    if (!is_ignored(signal)) ::sigaddset(&readable_, signal);
  }
  sigset_t blocked = readable_;
  ::sigaddset(&blocked, SIGTTOU);  // to hand the terminal over from the background
  ::sigprocmask(SIG_BLOCK, &blocked, &original_mask_);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &original_pipe_);
}

void BlockedSignals::restore() const {
  ::sigaction(SIGPIPE, &original_pipe_, nullptr);
  ::sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
}

}  // namespace qccl::tools
