// Lets streams go on if the engine does not: a thread that drives it may be held up in the devices' driver by another
// one that waits for these streams.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/gates.h"

namespace qccl::engine {

// Thread-safe. The gates outlive it.
class GateWatch {
 public:
  // Counted in looks: a process that was stopped as a whole has not looked either.
  struct Patience {
    Nanoseconds interval = std::chrono::milliseconds(50);
    int looks = 200;
  };

  // `rounds`: how many rounds the engine has made. Any thread may call it.
  explicit GateWatch(std::function<std::uint64_t()> rounds) : GateWatch(std::move(rounds), Patience()) {}
  GateWatch(std::function<std::uint64_t()> rounds, Patience patience)
      : rounds_(std::move(rounds)), patience_(patience) {}
  GateWatch(const GateWatch&) = delete;
  GateWatch& operator=(const GateWatch&) = delete;

  // Watches these as well. The first ones start the thread, which opens all gates, with a line in the log, if some are
  // closed and the engine makes no round for as long as it has patience, ten seconds.
  void add(device::Gates& gates);

 private:
  void watch(const std::stop_token& stop);
  // With mutex_.
  bool any_closed() const;
  void open_all() const;

  const std::function<std::uint64_t()> rounds_;
  const Patience patience_;
  std::mutex mutex_;  // guards what follows; nobody calls the driver with it
  std::vector<device::Gates*> gates_;
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

}  // namespace qccl::engine
