// The ranks of this host: all of a job, or an agent's part of one.
#pragma once

#include "tools/run/job_part.h"
#include "tools/run/process/port.h"
#include "tools/run/process/rank_output.h"
#include "tools/run/supervisor.h"

namespace qccl::tools {

class LocalJob : public Supervisor {
 public:
  using Supervisor::Supervisor;

 protected:
  // How ranks are started.
  struct Wiring {
    bool pipe_output = false;  // else the launcher's own
    Input first_input = Input::inherit;
  };
  // Chooses part.master_port if that is 0. Says why if a rank could not be started; then none is left.
  std::optional<StartFailure> start_ranks(JobPart& part, const Wiring& wiring);

  std::vector<int> live_ranks() const override;
  void pass_on(int signal, bool all) override;
  std::chrono::milliseconds kill_all() override;

  RankPipes pipes_;

 private:
  static RankSpec spec_of(int local_rank, const JobPart& part, const Wiring& wiring, const std::vector<int>& cores);

  ReservedPort port_;
};

}  // namespace qccl::tools
