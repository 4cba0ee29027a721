// The critical path of a single slice through a plan: the time of a small operation, whatever its bytes.
#pragma once

#include <functional>

#include "plan/algorithms/hosts.h"

namespace qccl::plan {

// Number of consecutive frames, between hosts and inside them.
struct CriticalPath {
  int wire_hops = 0;
  int local_hops = 0;
  friend bool operator==(const CriticalPath&, const CriticalPath&) = default;
  friend CriticalPath operator+(const CriticalPath& a, const CriticalPath& b) {
    return {a.wire_hops + b.wire_hops, a.local_hops + b.local_hops};
  }
};

// The cost of a hop, to tell which path is the longest.
struct HopCosts {
  double wire = 1;
  double local = 0;
};

// Measures an algorithm's paths between ranks. References its arguments.
class PathFinder {
 public:
  PathFinder(const Request& request, const Hosts& hosts, const HopCosts& costs)
      : request_(request), hosts_(hosts), costs_(costs) {}

  const Request& request() const { return request_; }
  const Hosts& hosts() const { return hosts_; }

  CriticalPath longer(const CriticalPath& a, const CriticalPath& b) const { return cost(a) < cost(b) ? b : a; }
  CriticalPath hop(int from, int to) const {
    return hosts_.host_of(from) == hosts_.host_of(to) ? CriticalPath{0, 1} : CriticalPath{1, 0};
  }
  // `count` hops between any ranks: over the wire if there is more than one host.
  CriticalPath hops(int count) const { return hosts_.count() > 1 ? CriticalPath{count, 0} : CriticalPath{0, count}; }
  // The longest path from a rank to the root of a tree. `parent` gives the rank above, -1 for the root.
  CriticalPath deepest(const std::function<int(int rank)>& parent) const;

 private:
  double cost(const CriticalPath& path) const { return path.wire_hops * costs_.wire + path.local_hops * costs_.local; }

  const Request& request_;
  const Hosts& hosts_;
  const HopCosts& costs_;
};

// Does not build the plan: takes time linear in the world (trees: times its logarithm). Assumes that all chunks have
// elements.
CriticalPath critical_path(const Request& request, const Hosts& hosts, const HopCosts& costs);

}  // namespace qccl::plan
