#include "job/engine_runtime.h"

#include <utility>

namespace qccl::comm {

EngineRuntime::EngineRuntime(std::unique_ptr<Transport> transport, const engine::EngineOptions& options,
                             const engine::PollingOptions& polling, const RankStatus& self, const Clock& clock)
    : transport_(std::move(transport)),
      engine_(*transport_, clock, options),
      driver_(engine_, *transport_, clock, polling) {
  driver_.start();
  status_.emplace(self, [this](RankStatus& status) {
    driver_.with_engine([&](engine::Engine& engine) { engine.report(status); });
  });
}

EngineRuntime::~EngineRuntime() {
  status_.reset();
  driver_.leave();
  driver_.stop();
  transport_->close();
}

}  // namespace qccl::comm
