// Cores of simulated machines, which ranks take turns on: a rank runs when it does not already and a core of its
// machine is free; those that wait get theirs in the order in which they came.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace qccl::sim {

class Cores {
 public:
  // `machines`: each rank's, from 0; `each`: cores of a machine, from 1.
  Cores(int each, const std::vector<int>& machines);

  // True: the rank runs until end(). False: it runs already or has to wait, and end() will name it.
  bool begin(int rank);
  // The rank whose turn it is now, if any: begin() then lets it.
  std::optional<int> end(int rank);

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
