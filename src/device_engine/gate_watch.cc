#include "device_engine/gate_watch.h"

#include <algorithm>

#include "base/log.h"

namespace qccl::engine {

void GateWatch::add(device::Gates& gates) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(gates_, &gates) != gates_.end()) return;
  gates_.push_back(&gates);
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

void GateWatch::watch(const std::stop_token& stop) {
  std::uint64_t seen = 0;
  int looks = 0;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const std::uint64_t rounds = rounds_();
    looks = rounds == seen && any_closed() ? looks + 1 : 0;
    seen = rounds;
    if (looks == patience_.looks) {
      open_all();
      looks = 0;
    }
    stopped_.wait_for(lock, stop, patience_.interval, [] { return false; });
  }
}

bool GateWatch::any_closed() const {
  return std::ranges::any_of(gates_, [](const device::Gates* each) { return each->any_closed(); });
}

void GateWatch::open_all() const {
  log(LogLevel::error,
      "streams go on without the results of calls, because a function of the devices' driver has not returned for ten "
      "seconds: another thread may wait for those streams in it; QCCL_STREAM_ORDER=host avoids that");
  for (device::Gates* const each : gates_) each->open_all();
}

}  // namespace qccl::engine
