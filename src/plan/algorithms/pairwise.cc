// Pairwise: pieces are sent one after another, rank r to r + 1, r + 2 and so on, so that no receiver gets them all at
// once.
#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

constexpr CollectiveBuilder kCollectives[] = {
    {Collective::all_to_all, [](Builder& b) { build_all_to_all(b, /*one_at_a_time=*/true); }}};

}  // namespace

extern const AlgorithmEntry kPairwise = {
    .algorithm = Algorithm::pairwise,
    .name = "pairwise",
    .collectives = kCollectives,
    .critical_path = [](const PathFinder& paths) { return paths.hops(1); },
};

}  // namespace qccl::plan
