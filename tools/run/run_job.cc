#include "tools/run/run_job.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace qccl::tools {

std::optional<int> RunJob::start() {
  if (!options_.log_folder.empty()) {
    if (const auto refused = console_.open_logs(options_.log_folder, options_.part.world)) {
      say(*refused);
      return 1;
    }
  }
  JobPart part = options_.part;
  const Wiring wiring{options_.tag_output || !options_.log_folder.empty(), Input::inherit};
  const auto refused = start_ranks(part, wiring);
  if (!refused) return std::nullopt;
  say(refused->message);
  return refused->exit_code;
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
