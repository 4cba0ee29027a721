// Exchange: a reduce_scatter in which each rank sends to one other at a time. Rank r sends a slice to rank r + 1, then
// one to r + 2, and so on, so that rank r + d receives from d ranks behind it in turn (the pairwise exchange of MPICH).
//
// The order is by slice: an owner adds slice 0 of all ranks before slice 1 of any, so a rank that sent all slices of a
// chunk first would wait for a peer that waits for it.
#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

void reduce_scatter(Builder& b) {
  const int first = b.last_lane() + 1;
  for (const int peer : b.others()) b.add_scratch(peer, b.begin_of(peer), {{StepKind::send_input, 0, {peer}}});
  b.order_by_slice(first);
  b.add(b.rank(), b.begin_of(b.rank()), 0, b.reduce_steps());
}

constexpr CollectiveBuilder kCollectives[] = {
    {Collective::reduce_scatter, reduce_scatter, /*adds_in_rank_order=*/true, /*only_on_request=*/true}};

}  // namespace

extern const AlgorithmEntry kExchange = {
    .algorithm = Algorithm{9},
    .name = "exchange",
    .collectives = kCollectives,
    .critical_path = [](const PathFinder& paths) { return paths.hops(1); },
};

}  // namespace qccl::plan
