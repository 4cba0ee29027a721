// The line that the first rank writes at the end of a job: what it did, sent and saved.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "qccl/status.h"

namespace qccl::comm {

// "rank 0 of 4: 4711 calls of 12.3 GB, ...", from the rank's last state.
std::string end_of_job_line(const RankStatus& totals);

// What a rank has done in the jobs that it has at the same time, as after it has grown: they are one to its user. Their
// contexts share it; the last to go writes the line to standard error, unless QCCL_LOG is error or warning, or no call
// has ended well. Thread-safe.
class JobTotals {
 public:
  // Those of the jobs that are open in this process under the rank, or new ones.
  static std::shared_ptr<JobTotals> of(int rank);

  JobTotals() = default;
  ~JobTotals();
  JobTotals(const JobTotals&) = delete;
  JobTotals& operator=(const JobTotals&) = delete;

  // A job has ended with this state. `is_first`: no lower rank is left to write the line.
  void add(const RankStatus& ended, bool is_first);

 private:
  std::mutex mutex_;
  RankStatus sum_;
  bool is_first_ = false;
};

}  // namespace qccl::comm
