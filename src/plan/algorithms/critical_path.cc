#include "plan/algorithms/critical_path.h"

#include "plan/algorithms/registry.h"

namespace qccl::plan {

CriticalPath PathFinder::deepest(const std::function<int(int rank)>& parent) const {
  CriticalPath longest;
  for (int rank = 0; rank < request.world; ++rank) {
    CriticalPath path;
    for (int at = rank, above = parent(at); above >= 0; at = above, above = parent(at)) path = path + hop(at, above);
    longest = longer(longest, path);
  }
  return longest;
}

CriticalPath PathFinder::hop_inside(const Hosts& groups) const {
  CriticalPath longest;
  for (int group = 0; group < groups.count(); ++group) {
    for (const int rank : groups.others(group, groups.members(group).front())) {
      longest = longer(longest, hop(groups.members(group).front(), rank));
    }
  }
  return longest;
}

CriticalPath PathFinder::hop_from(int rank, int except) const {
  const auto others_outside = [&](const Hosts& groups) {
    const int own = groups.host_of(rank);
    return request.world - groups.size_of(own) - (groups.host_of(except) == own ? 0 : 1);
  };
  const bool has_sites = places.sites.count() > 1;
  if (has_sites && others_outside(places.sites) > 0) return {.wire_hops = 1};
  const int elsewhere = others_outside(places.hosts);
  if (elsewhere > 0) return has_sites ? CriticalPath{.near_hops = 1} : CriticalPath{.wire_hops = 1};
  return {.local_hops = request.world > 2 ? 1 : 0};
}

CriticalPath critical_path(const Request& request, const Places& places, const HopCosts& costs) {
  if (request.world == 1) return {};
  return entry_of(built_for(request.algorithm, request.compressed)).critical_path({request, places, costs});
}

}  // namespace qccl::plan
