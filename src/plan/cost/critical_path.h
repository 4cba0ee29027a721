// The longest way of a single slice through a plan: what a small operation takes, whatever its bytes.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace qccl::plan {

// Frames one after the other, between hosts and inside them.
struct CriticalPath {
  int wire_hops = 0;
  int local_hops = 0;
  friend bool operator==(const CriticalPath&, const CriticalPath&) = default;
};

// What a hop costs, to tell which way is the longest.
struct HopCosts {
  double wire = 1;
  double local = 0;
};

// `hosts` of each rank; none are empty. Without making the plan: in time linear in the world (trees:
// times its logarithm). All chunks are taken to have elements.
CriticalPath critical_path(const Request& request, const std::vector<int>& hosts, const HopCosts& costs);

}  // namespace qccl::plan
