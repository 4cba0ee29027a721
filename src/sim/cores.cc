#include "sim/cores.h"

#include <algorithm>

namespace qccl::sim {

Cores::Cores(int each, const std::vector<int>& machines)
    : machines_of_(machines),
      machines_(static_cast<std::size_t>(*std::max_element(machines.begin(), machines.end())) + 1, Machine{each, {}}),
      states_(machines.size(), State::idle) {}

bool Cores::begin(int rank) {
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

std::optional<int> Cores::end(int rank) {
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

}  // namespace qccl::sim
