// One-shot: every rank sends its data directly to the ranks that need it. Fewest steps, most bytes.
#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

// In a lane a slice has left before its sum overwrites it, so it works in place.
void all_reduce(Builder& b) {
  std::vector<Step> steps;
  if (b.world() > 1) steps.push_back({StepKind::send_input, 0, b.others()});
  auto reduce = b.reduce_steps(b.request().compressed);
  steps.insert(steps.end(), reduce.begin(), reduce.end());
  b.add_in_every_lane(steps);
}

void reduce(Builder& b) {
  if (!b.is_root()) return b.add_scratch(0, 0, {{StepKind::send_input, 0, {b.root()}}});
  b.add_in_place(0, b.reduce_steps());
}

void reduce_scatter(Builder& b) {
  for (const int peer : b.others()) b.add_scratch(peer, b.begin_of(peer), {{StepKind::send_input, 0, {peer}}});
  b.add(b.rank(), b.begin_of(b.rank()), 0, b.reduce_steps());
}

void all_gather(Builder& b) {
  b.add_own_piece(b.others());
  for (const int peer : b.others()) b.add(peer, 0, b.begin_of(peer), {{StepKind::recv_copy, 0, {peer}}});
}

void broadcast(Builder& b) {
  if (!b.is_root()) return b.add_in_place(0, {{StepKind::recv_copy, 0, {b.root()}}});
  if (b.request().compressed && b.world() > 1) {
    const Step keep{StepKind::local_copy, 0, {}, true};
    return b.add_in_place(0, {{StepKind::send_input, 0, b.others()}, keep});
  }
  // A lane for each peer, so that a slow receiver delays no other.
  for (const int peer : b.others()) b.add_in_place(0, {{StepKind::send_input, 0, {peer}}});
}

void gather(Builder& b) {
  if (!b.is_root()) return b.add_scratch(b.rank(), 0, {{StepKind::send_input, 0, {b.root()}}});
  b.add(b.rank(), 0, b.begin_of(b.rank()), {{StepKind::local_copy, 0, {}}});
  for (const int peer : b.others()) b.add(peer, 0, b.begin_of(peer), {{StepKind::recv_copy, 0, {peer}}});
}

void scatter(Builder& b) {
  if (!b.is_root()) return b.add(b.rank(), 0, 0, {{StepKind::recv_copy, 0, {b.root()}}});
  b.add(b.rank(), b.begin_of(b.rank()), 0, {{StepKind::local_copy, 0, {}}});
  for (const int peer : b.others()) b.add_scratch(peer, b.begin_of(peer), {{StepKind::send_input, 0, {peer}}});
}

void all_to_all(Builder& b) { build_all_to_all(b, /*one_at_a_time=*/false); }

void barrier(Builder&) {}  // has no elements

constexpr CollectiveBuilder kCollectives[] = {
    {Collective::all_reduce, all_reduce, /*adds_in_rank_order=*/true},
    {Collective::reduce, reduce, /*adds_in_rank_order=*/true},
    {Collective::reduce_scatter, reduce_scatter, /*adds_in_rank_order=*/true},
    {Collective::all_gather, all_gather, /*adds_in_rank_order=*/true},
    {Collective::broadcast, broadcast, /*adds_in_rank_order=*/true},
    {Collective::gather, gather, /*adds_in_rank_order=*/true},
    {Collective::scatter, scatter, /*adds_in_rank_order=*/true},
    {Collective::all_to_all, all_to_all, /*adds_in_rank_order=*/true},
    {Collective::barrier, barrier, /*adds_in_rank_order=*/true},
};

}  // namespace

extern const AlgorithmEntry kOneShot = {
    .algorithm = Algorithm::one_shot,
    .name = "one_shot",
    .collectives = kCollectives,
    .critical_path = [](const PathFinder& paths) { return paths.hops(1); },
    .chunk_count = lanes_of_all_reduce,
};

}  // namespace qccl::plan
