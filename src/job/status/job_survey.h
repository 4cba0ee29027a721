// The state of every rank of a job, as one of its ranks collects it.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "job/status/status_server.h"
#include "qccl/status.h"

namespace qccl::engine {
class ProgressDriver;
}

namespace qccl::comm {

// One rank's part in it. Thread-safe. The driver outlives the object.
class JobSurvey final : public StatusServer::Source {
 public:
  // `self` has what never changes: rank, world, job, host, process. From now on this rank answers its peers.
  JobSurvey(engine::ProgressDriver& driver, RankStatus self);
  // No question may be under way.
  ~JobSurvey() override;
  JobSurvey(const JobSurvey&) = delete;
  JobSurvey& operator=(const JobSurvey&) = delete;

  RankStatus own() override;
  // All ranks of the job, by rank. Blocks for `patience` at most if some do not answer; what is known of those is in
  // RankStatus::absence. It waits without driving the engine: user threads and the progress thread do.
  std::vector<RankStatus> all(Nanoseconds patience) override;

 private:
  engine::ProgressDriver& driver_;
  const RankStatus self_;
};

}  // namespace qccl::comm
