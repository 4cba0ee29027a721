// All ranks of a job in one thread: the real engine of each over the simulated network with its virtual clock.
//
// A rank runs when it may have something to do: a frame or a loss has arrived, it can send again, a timer of its engine
// is due, or a caller of engine() may have posted something. Time advances when no rank has anything left to do. A run
// may take the rank's processor some time (Processor::work()): until then the rank does not run again, and its core is
// occupied.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "sim/cores.h"
#include "transport/sim/network.h"

namespace qccl::sim {

struct SimulatedJobOptions {
  int ranks = 1;
  std::uint64_t seed = 1;
  NetworkOptions links{};
  engine::EngineOptions engine{};                           // of every rank; rank and world are set for each
  std::vector<std::size_t> slice_bytes_of_rank{};           // if they differ
  std::vector<std::shared_ptr<internal::LogStore>> logs{};  // of each rank; empty: none
  int cores = 0;              // of a machine, shared by its ranks; 0: each rank has its own
  int hosts_per_machine = 1;  // virtual hosts share its cores
};

// One thread.
class SimulatedJob {
 public:
  explicit SimulatedJob(SimulatedJobOptions options);
  ~SimulatedJob();

  int size() const { return static_cast<int>(engines_.size()); }
  Network& network() { return network_; }
  TimePoint now() { return network_.clock().now(); }
  // The engine, for posting, failing or closing; the rank runs in the next step.
  engine::Engine& engine(int rank);

  // Calls `event` when the clock reaches `time`.
  void at(TimePoint time, std::function<void()> event) { events_.emplace(time, std::move(event)); }
  // Calls `listener` with each rank on which an operation has ended, after its work is complete.
  void on_end(std::function<void(int rank)> listener) { on_end_ = std::move(listener); }

  // Runs every rank that may have something to do. If there is none, advances time to the next arrival, timer or event.
  // False if there is none of these either, or if a rank keeps moving at the same time without end.
  bool step();
  // Steps until the condition holds; false if step() returns false or virtual time passes `limit` from now.
  bool run_until(const std::function<bool()>& condition, Nanoseconds limit);
  // Lets everything in flight arrive; timers wait.
  void settle();

 private:
  bool look_at_woken();
  void look_at(int rank);
  // Keeps the rank's core until its processor is free.
  void end_look(int rank);
  bool advance();
  void note_timer(int rank);
  void wake_due();

  Network network_;
  Cores cores_;
  std::vector<std::unique_ptr<engine::Engine>> engines_;
  std::function<void(int)> on_end_;
  std::multimap<TimePoint, std::function<void()>> events_;
  std::vector<TimePoint> timers_;    // by rank, as of its last run
  TimePoint next_timer_ = kForever;  // not later than the earliest of them
  bool is_stuck_ = false;
};

}  // namespace qccl::sim
