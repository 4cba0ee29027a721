// Lets streams go on if the engine does not: a thread that drives it may be held up in the devices' driver by another
// one that waits for these streams.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "device/gates.h"
#include "engine/engine.h"

namespace qccl::comm {

// Thread-safe. The engine and the gates outlive it.
class GateWatch {
 public:
  explicit GateWatch(const engine::Engine& engine) : engine_(engine) {}
  GateWatch(const GateWatch&) = delete;
  GateWatch& operator=(const GateWatch&) = delete;

  // Watches these as well. The first ones start the thread, which opens all gates, with a line in the log, if some are
  // closed and the engine makes no round for ten seconds.
  void add(device::Gates& gates);

 private:
  void watch(const std::stop_token& stop);
  // With mutex_.
  bool any_closed() const;
  void open_all() const;

  const engine::Engine& engine_;
  std::mutex mutex_;  // guards what follows; nobody calls the driver with it
  std::vector<device::Gates*> gates_;
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

}  // namespace qccl::comm
