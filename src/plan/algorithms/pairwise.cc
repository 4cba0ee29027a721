// Pairwise: a rank sends to one other at a time, rank r to r + 1, r + 2 and so on, so that no receiver gets all pieces
// at once. An all_reduce is SRA in turns: the same additions in the same order, and the same bits.
#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

// Only inputs take turns: results leave when their sums are complete, each slice to all ranks and encoded once.
void all_reduce(Builder& b) {
  const int first = b.last_lane() + 1;
  for (const int peer : b.others()) b.add_scratch(peer, b.begin_of(peer), {{StepKind::send_input, 0, {peer}}});
  b.order_by_slice(first);
  auto own = b.reduce_steps();
  if (b.world() > 1) own.push_back({StepKind::send_result, 1, b.others()});
  b.add_in_place(b.rank(), std::move(own));
  for (const int peer : b.others()) b.add_in_place(peer, {{StepKind::recv_copy, 1, {peer}}});
}

void all_to_all(Builder& b) { build_all_to_all(b, /*one_at_a_time=*/true); }

constexpr CollectiveBuilder kCollectives[] = {
    {.collective = Collective::all_reduce,
     .build = all_reduce,
     .adds_in_rank_order = true,
     .only_on_request = true,
     .uses_shares = true},
    {.collective = Collective::all_to_all, .build = all_to_all},
};

// An all_to_all sends directly; an all_reduce goes by way of the chunk's owner.
CriticalPath longest_path(const PathFinder& paths) {
  return paths.hops(paths.request.collective == Collective::all_reduce ? 2 : 1);
}

}  // namespace

extern const AlgorithmEntry kPairwise = {
    .algorithm = Algorithm::pairwise,
    .name = "pairwise",
    .collectives = kCollectives,
    .critical_path = longest_path,
    .chunk_count = [](const Request& request) { return request.world; },
};

}  // namespace qccl::plan
