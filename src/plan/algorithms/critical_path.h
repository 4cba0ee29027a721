#pragma once

#include <functional>

#include "plan/algorithms/hosts.h"
#include "plan/plan.h"

namespace qccl::plan {

// The critical path of a single slice through a plan, which is the time of a small operation whatever its bytes: the
// number of consecutive frames between sites (without sites, between hosts), inside hosts, and between hosts of a site.
struct CriticalPath {
  int wire_hops = 0;
  int local_hops = 0;
  int near_hops = 0;
  friend bool operator==(const CriticalPath&, const CriticalPath&) = default;
  friend CriticalPath operator+(const CriticalPath& a, const CriticalPath& b) {
    return {a.wire_hops + b.wire_hops, a.local_hops + b.local_hops, a.near_hops + b.near_hops};
  }
  friend CriticalPath operator*(int times, const CriticalPath& path) {
    return {times * path.wire_hops, times * path.local_hops, times * path.near_hops};
  }
};

// The cost of a hop, to tell which path is the longest.
struct HopCosts {
  double wire, local, near;
};

// Measures an algorithm's paths between ranks. References its arguments.
struct PathFinder {
  const Request& request;
  const Places& places;
  const HopCosts& costs;

  CriticalPath longer(const CriticalPath& a, const CriticalPath& b) const { return cost(a) < cost(b) ? b : a; }
  CriticalPath hop(int from, int to) const {
    if (places.are_local(from, to)) return {.local_hops = 1};
    return places.are_near(from, to) ? CriticalPath{.near_hops = 1} : CriticalPath{.wire_hops = 1};
  }
  // `count` hops between any ranks: over the wire if there is more than one host.
  CriticalPath hops(int count) const {
    return places.hosts.count() > 1 ? CriticalPath{.wire_hops = count} : CriticalPath{.local_hops = count};
  }
  // The longest hop inside one of these groups of ranks; none if every rank is alone.
  CriticalPath hop_inside(const Hosts& groups) const;
  // The longest hop from `rank` to another that is not `except`; none if there is none.
  CriticalPath hop_from(int rank, int except) const;
  // The longest path from a rank to the root of a tree. `parent` gives the rank above, -1 for the root.
  CriticalPath deepest(const std::function<int(int rank)>& parent) const;
  double cost(const CriticalPath& path) const {
    return path.wire_hops * costs.wire + path.local_hops * costs.local + path.near_hops * costs.near;
  }
};

// Does not build the plan: takes time linear in the world (trees: times its logarithm). Assumes that all chunks have
// elements.
CriticalPath critical_path(const Request& request, const Places& places, const HopCosts& costs);

}  // namespace qccl::plan
