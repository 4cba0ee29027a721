#include "plan/algorithms/critical_path.h"

#include "plan/algorithms/registry.h"

namespace qccl::plan {

CriticalPath PathFinder::deepest(const std::function<int(int rank)>& parent) const {
  CriticalPath longest;
  for (int rank = 0; rank < request_.world; ++rank) {
    CriticalPath path;
    for (int at = rank, above = parent(at); above >= 0; at = above, above = parent(at)) path = path + hop(at, above);
    longest = longer(longest, path);
  }
  return longest;
}

CriticalPath critical_path(const Request& request, const Hosts& hosts, const HopCosts& costs) {
  if (request.world == 1) return {};
  return entry_of(built_for(request.algorithm, request.compressed)).critical_path({request, hosts, costs});
}

}  // namespace qccl::plan
