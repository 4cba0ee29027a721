// QCCL_DASHBOARD: the page of a job, served by its rank 0 while the job runs (docs/dashboard.md).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "dashboard/dashboard.h"
#include "dashboard/job_view.h"
#include "job/status/job_survey.h"
#include "observe/log_store.h"

namespace qccl::comm {

// Asks for the state of all ranks twice a second, from a thread of its own, from its construction to its destruction.
class JobPage {
 public:
  // InvalidArgument if the text is no address.
  static Status check(const std::string& address);
  // Writes the page's URL to standard error. Without a server, the log says why, and the job goes on: nothing is
  // returned. `survey` must outlive the object.
  static std::unique_ptr<JobPage> open(const std::string& address, JobSurvey& survey,
                                       std::shared_ptr<const internal::LogStore> log);
  ~JobPage();
  JobPage(const JobPage&) = delete;
  JobPage& operator=(const JobPage&) = delete;

 private:
  JobPage(JobSurvey& survey, std::shared_ptr<const internal::LogStore> log);
  void serve();
  void look();
  std::string metrics() const;

  JobSurvey& survey_;
  const std::shared_ptr<const internal::LogStore> log_;
  internal::LogStore::Seen seen_;  // the thread's
  dashboard::JobView view_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;           // guarded by mutex_
  std::vector<RankStatus> states_;  // the latest, guarded by mutex_
  std::unique_ptr<dashboard::Dashboard> dashboard_;
  std::thread thread_;
};

}  // namespace qccl::comm
