// Cores of simulated machines, on which ranks take turns: a rank runs if it is not running already and a core of its
// machine is free; waiting ranks get cores in the order in which they came.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace qccl::sim {

class Cores {
 public:
  // `machines`: the machine of each rank, from 0; `each`: number of cores of a machine, at least 1.
  Cores(int each, const std::vector<int>& machines);

  // True: the rank runs until end(). False: it is running already or has to wait, and a later end() returns it.
  bool begin(int rank);
  // Returns the rank whose turn it is now, if any: begin() then admits it.
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
