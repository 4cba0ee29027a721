// A new algorithm adds its name to the two lists here; everything else is in the algorithm's file.
#include "plan/algorithms/registry.h"

#include <algorithm>

#include "base/log.h"

namespace qccl::plan {

extern const AlgorithmEntry kOneShot, kSra, kRing, kTree, kRecursiveDoubling, kBinomial, kPairwise, kHierarchical,
    kExchange;

namespace {

constexpr const AlgorithmEntry* kAlgorithms[] = {&kOneShot,  &kSra,      &kRing,         &kTree,    &kRecursiveDoubling,
                                                 &kBinomial, &kPairwise, &kHierarchical, &kExchange};

}  // namespace

std::span<const AlgorithmEntry* const> algorithm_list() { return kAlgorithms; }

const AlgorithmEntry& entry_of(Algorithm algorithm) {
  const auto* const found = std::ranges::find(kAlgorithms, algorithm, &AlgorithmEntry::algorithm);
  QCCL_CHECK(found != std::end(kAlgorithms));
  return **found;
}

const CollectiveBuilder* builder_of(Collective collective, Algorithm algorithm) {
  const auto all = entry_of(algorithm).collectives;
  const auto found = std::ranges::find(all, collective, &CollectiveBuilder::collective);
  return found == all.end() ? nullptr : &*found;
}

bool adds_in_rank_order(Collective collective, Algorithm algorithm) {
  const CollectiveBuilder* const found = builder_of(collective, algorithm);
  return found != nullptr && found->adds_in_rank_order;
}

bool has_algorithm(Collective collective, Algorithm algorithm) { return builder_of(collective, algorithm) != nullptr; }

bool uses_shares(Collective collective, Algorithm algorithm) {
  const CollectiveBuilder* const builder = builder_of(collective, algorithm);
  return builder != nullptr && builder->uses_shares;
}

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

}  // namespace qccl::plan

namespace qccl {

std::string_view to_string(Algorithm algorithm) {
  if (algorithm == Algorithm::automatic) return "auto";
  for (const plan::AlgorithmEntry* entry : plan::algorithm_list()) {
    if (entry->algorithm == algorithm) return entry->name;
  }
  return "unknown";
}

std::vector<Algorithm> every_algorithm() {
  std::vector<Algorithm> all;
  for (const plan::AlgorithmEntry* entry : plan::algorithm_list()) all.push_back(entry->algorithm);
  std::ranges::sort(all);
  return all;
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  if (name == to_string(Algorithm::automatic)) return Algorithm::automatic;
  for (const plan::AlgorithmEntry* entry : plan::algorithm_list()) {
    if (entry->name == name) return entry->algorithm;
  }
  return std::nullopt;
}

}  // namespace qccl
