// A new algorithm adds its name to the two lists here; everything else is in the algorithm's file.
#include "plan/algorithms/registry.h"

#include <algorithm>

#include "base/log.h"

namespace qccl::plan {

extern const AlgorithmEntry kOneShot, kSra, kRing, kTree, kRecursiveDoubling, kBinomial, kPairwise, kHierarchical;

namespace {

constexpr const AlgorithmEntry* kAlgorithms[] = {&kOneShot,           &kSra,      &kRing,     &kTree,
                                                 &kRecursiveDoubling, &kBinomial, &kPairwise, &kHierarchical};

}  // namespace

std::span<const AlgorithmEntry* const> algorithm_list() { return kAlgorithms; }

const AlgorithmEntry& entry_of(Algorithm algorithm) {
  const auto* const found = std::ranges::find(kAlgorithms, algorithm, &AlgorithmEntry::algorithm);
  QCCL_CHECK(found != std::end(kAlgorithms));
  return **found;
}

BuildFunction* builder_of(Collective collective, Algorithm algorithm) {
  const auto all = entry_of(algorithm).collectives;
  const auto found = std::ranges::find(all, collective, &CollectiveBuilder::collective);
  return found == all.end() ? nullptr : found->build;
}

bool has_algorithm(Collective collective, Algorithm algorithm) { return builder_of(collective, algorithm) != nullptr; }

std::vector<Algorithm> algorithms_of(Collective collective) {
  std::vector<Algorithm> found;
  for (const AlgorithmEntry* entry : kAlgorithms) {
    if (has_algorithm(collective, entry->algorithm)) found.push_back(entry->algorithm);
  }
  return found;
}

Algorithm built_for(Algorithm algorithm, bool compressed) {
  if (!compressed || algorithm == Algorithm::automatic) return algorithm;
  return entry_of(algorithm).compressed_as.value_or(algorithm);
}

int lanes_of_all_reduce(const Request& request) {
  if (request.collective != Collective::all_reduce) return 1;
  const std::uint64_t slices = slice_count(request.count, request.slice_elements);
  return static_cast<int>(std::clamp<std::uint64_t>(slices, 1, static_cast<std::uint64_t>(request.lanes)));
}

int chunk_count(const Request& request) {
  const AlgorithmEntry& entry = entry_of(request.algorithm);
  return entry.chunk_count == nullptr ? 1 : entry.chunk_count(request);
}

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
