// A job whose ranks are all on this host.
#pragma once

#include "tools/run/launcher.h"
#include "tools/run/local_job.h"

namespace qccl::tools {

class RunJob : public LocalJob {
 public:
  RunJob(const LaunchOptions& options, const BlockedSignals& signals, pid_t keeper)
      : LocalJob(options.limits, signals, keeper), options_(options), console_(options.tag_output) {}

 protected:
  std::optional<int> start() override;
  void want(std::vector<pollfd>& list) const override;
  void serve(const std::vector<pollfd>& list) override;
  void on_end(RankProcess& process, pid_t pid, int status) override;
  void on_child_signal() override { lend_terminal(); }
  void say(const std::string& text) override;
  void finish() override;

 private:
  void lend_terminal();
  void take_terminal_back(pid_t from);

  const LaunchOptions& options_;
  Console console_;
  bool terminal_lent_ = false;
};

}  // namespace qccl::tools
