#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "device_engine/devices.h"
#include "engine/engine.h"
#include "engine/progress/progress_driver.h"
#include "job/job_page.h"
#include "job/status/job_survey.h"
#include "job/status/metrics_file.h"
#include "job/status/status_server.h"
#include "transport/transport.h"

namespace qccl::comm {

// The running engine of a rank: its transport, the engine over it, the thread that drives it and the one that answers
// questions about it.
class EngineRuntime {
 public:
  // Starts the threads. `self` says rank, world, job, process and host to those that ask. The clock outlives the
  // object.
  EngineRuntime(std::unique_ptr<Transport> transport, const engine::EngineOptions& options,
                const engine::PollingOptions& polling, const RankStatus& self, const Clock& clock);
  // Writes its metrics from now on.
  void write_metrics(std::string path, Nanoseconds interval) {
    metrics_.emplace(std::move(path), interval, [this] { return survey_->own(); });
  }
  // Serves the page of the job from now on, if the address can be had. `log` is this rank's.
  void serve_page(const std::string& address, std::shared_ptr<const internal::LogStore> log) {
    page_ = JobPage::open(address, *survey_, std::move(log));
  }
  // Says goodbye to the peers, sends what is queued and closes: see Engine::leave_patience().
  ~EngineRuntime();
  EngineRuntime(const EngineRuntime&) = delete;
  EngineRuntime& operator=(const EngineRuntime&) = delete;

  engine::ProgressDriver& driver() { return driver_; }
  const Transport& transport() const { return *transport_; }
  JobSurvey& survey() { return *survey_; }
  // Their streams go on if the engine stands still (Devices::watch_gates()).
  void watch_gates(engine::Devices& devices) {
    gate_watch_ = devices.watch_gates([this] { return engine_.rounds(); });
  }

 private:
  const std::unique_ptr<Transport> transport_;
  engine::Engine engine_;
  engine::ProgressDriver driver_;
  std::optional<JobSurvey> survey_;
  std::optional<StatusServer> status_;  // asks the survey
  std::optional<MetricsFile> metrics_;  // asks it too
  std::unique_ptr<JobPage> page_;       // and so does this
  std::shared_ptr<void> gate_watch_;    // last: it asks the engine, so it ends first
};

}  // namespace qccl::comm
