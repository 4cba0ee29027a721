#include "job/engine_runtime.h"

#include <utility>

namespace qccl::comm {

EngineRuntime::EngineRuntime(std::unique_ptr<Transport> transport, const engine::EngineOptions& options,
                             const engine::PollingOptions& polling, const RankStatus& self, const Clock& clock)
    : transport_(std::move(transport)),
      engine_(*transport_, clock, options),
      driver_(engine_, *transport_, clock, polling) {
  driver_.start();
  survey_.emplace(driver_, self);
  status_.emplace(self, *survey_);
}

EngineRuntime::~EngineRuntime() {
  page_.reset();
  metrics_.reset();
  status_.reset();
  survey_.reset();
  driver_.leave();
  driver_.stop();
  transport_->close();
}

}  // namespace qccl::comm
