// Cores of simulated machines, on which ranks take turns: a rank runs if it is not running already and a core of its
// machine is free; waiting ranks get cores in the order in which they came.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace qccl::sim {

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

}  // namespace qccl::sim
