// A job's ranks on this host: their variables, cores, output and terminal.
#pragma once

#include <vector>

#include "tools/run/launcher.h"
#include "tools/run/process/port.h"
#include "tools/run/process/rank_output.h"
#include "tools/run/supervisor.h"

namespace qccl::tools {

class RunJob : public Supervisor {
 public:
  RunJob(const LaunchOptions& options, const BlockedSignals& signals, pid_t keeper)
      : Supervisor(options.limits, signals, keeper), options_(options), console_(options.tag_output) {}

 protected:
  std::optional<int> start() override;
  void want(std::vector<pollfd>& list) const override;
  void serve(const std::vector<pollfd>& list) override;
  void on_end(RankProcess& process, pid_t pid, int status) override;
  void on_child_signal() override { lend_terminal(); }
  void say(const std::string& text) override;
  void finish() override;

 private:
  std::optional<StartFailure> start_ranks();
  RankSpec spec_of(int rank, const std::vector<int>& cores) const;
  bool pipes_output() const { return options_.tag_output || !options_.log_folder.empty(); }
  void lend_terminal();
  void take_terminal_back(pid_t from);

  const LaunchOptions& options_;
  ReservedPort port_;
  RankPipes pipes_;
  Console console_;
  bool terminal_lent_ = false;
};

}  // namespace qccl::tools
