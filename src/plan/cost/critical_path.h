// The critical path of a single slice through a plan: the time of a small operation, whatever its bytes.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace qccl::plan {

// Number of consecutive frames, between hosts and inside them.
struct CriticalPath {
  int wire_hops = 0;
  int local_hops = 0;
  friend bool operator==(const CriticalPath&, const CriticalPath&) = default;
};

// The cost of a hop, to tell which path is the longest.
struct HopCosts {
  double wire = 1;
  double local = 0;
};

// `hosts`: the host of each rank, not empty. Does not build the plan: takes time linear in the world (trees: times its
// logarithm). Assumes that all chunks have elements.
CriticalPath critical_path(const Request& request, const std::vector<int>& hosts, const HopCosts& costs);

}  // namespace qccl::plan
