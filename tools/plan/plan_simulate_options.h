// `qccl plan simulate`'s command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/simulation.h"
#include "tools/plan/plan_layout.h"

namespace qccl::tools {

struct SimulateOptions {
  Collective collective = Collective::all_reduce;
  PlanLayout layout;
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;
  double factor = 4;
  std::optional<Algorithm> algorithm;
  int racks = 1;
  double rack_rate = 0;
  double jitter = 0;
  std::uint64_t seed = 1;
  std::uint64_t max_frames = 20'000'000;
  double timeout = 0;                              // seconds; 0: none
  std::vector<std::pair<int, double>> stragglers;  // rank, factor
  sim::Moments late;
  sim::Moments losses;
  sim::Moments stops;

  bool has_faults() const { return !losses.empty() || !stops.empty(); }
};

// Fills `options`; returns an exit code if the program should end here (help, or an error).
std::optional<int> parse_simulate_options(const std::vector<std::string>& arguments, SimulateOptions& options);

Nanoseconds nanoseconds(double seconds);

}  // namespace qccl::tools
