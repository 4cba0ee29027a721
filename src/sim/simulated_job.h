// All ranks of a job in one thread: the real engine of each over the simulated network with its virtual clock.
//
// A rank runs when it may have something to do: a frame or a loss has arrived, it can send again, a timer of its engine
// is due, or a caller of engine() may have posted something. Time advances when no rank has anything left to do. A run
// may take the rank's processor some time (Processor::work()): until then the rank does not run again, and its core is
// occupied.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "transport/sim/network.h"

namespace qccl::sim {

// Cores of simulated machines, on which ranks take turns: a rank runs if it is not running already and a core of its
// machine is free; waiting ranks get cores in the order in which they came.
class Cores {
 public:
  // `machines`: the machine of each rank, from 0; `each`: number of cores of a machine, at least 1.
  Cores(int each, const std::vector<int>& machines)
      : machines_of_(machines),
        machines_(static_cast<std::size_t>(*std::ranges::max_element(machines)) + 1, Machine{each, {}}),
        states_(machines.size(), State::idle) {}

  // True: the rank runs until end(). False: it is running already or has to wait, and a later end() returns it.
  bool begin(int rank) {
    Machine& machine = machine_of(rank);
    switch (state(rank)) {
      case State::idle:
        if (machine.free == 0) {
          state(rank) = State::waits;
          machine.waiting.push_back(rank);
          return false;
        }
        --machine.free;
        [[fallthrough]];
      case State::may_run: state(rank) = State::runs; return true;
      case State::runs: state(rank) = State::runs_and_is_wanted; return false;
      case State::waits:
      case State::runs_and_is_wanted: break;
    }
    return false;
  }
  // Returns the rank whose turn it is now, if any: begin() then admits it.
  std::optional<int> end(int rank) {
    Machine& machine = machine_of(rank);
    if (state(rank) == State::runs_and_is_wanted) {
      state(rank) = State::waits;
      machine.waiting.push_back(rank);
    } else {
      state(rank) = State::idle;
    }
    if (machine.waiting.empty()) {
      ++machine.free;
      return std::nullopt;
    }
    const int next = machine.waiting.front();
    machine.waiting.pop_front();
    state(next) = State::may_run;
    return next;
  }

 private:
  enum class State { idle, waits, may_run, runs, runs_and_is_wanted };
  struct Machine {
    int free = 0;
    std::deque<int> waiting;
  };
  Machine& machine_of(int rank) {
    return machines_[static_cast<std::size_t>(machines_of_[static_cast<std::size_t>(rank)])];
  }
  State& state(int rank) { return states_[static_cast<std::size_t>(rank)]; }

  const std::vector<int> machines_of_;  // by rank
  std::vector<Machine> machines_;
  std::vector<State> states_;  // by rank
};

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
