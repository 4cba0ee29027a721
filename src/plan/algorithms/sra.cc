// SRA: every rank owns one chunk. Phase 0 brings each chunk to its owner, phase 1 from there to its destinations. Each
// element is encoded at most twice, for any world.
#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

void scatter(Builder& b) {
  for (const int peer : b.others()) b.add_scratch(peer, b.begin_of(peer), {{StepKind::send_input, 0, {peer}}});
}

void all_reduce(Builder& b) {
  scatter(b);
  auto own = b.reduce_steps();
  if (b.world() > 1) own.push_back({StepKind::send_result, 1, b.others()});
  b.add_in_place(b.rank(), std::move(own));
  for (const int peer : b.others()) b.add_in_place(peer, {{StepKind::recv_copy, 1, {peer}}});
}

void reduce(Builder& b) {
  scatter(b);
  auto own = b.reduce_steps();
  if (!b.is_root()) {
    own.push_back({StepKind::send_result, 1, {b.root()}});
    return b.add_scratch(b.rank(), b.begin_of(b.rank()), std::move(own));
  }
  b.add_in_place(b.rank(), std::move(own));
  for (const int peer : b.others()) b.add_in_place(peer, {{StepKind::recv_copy, 1, {peer}}});
}

// The root sends every rank one chunk, which that rank passes on to the rest; the root's own chunk goes to all ranks in
// phase 1.
void broadcast(Builder& b) {
  if (b.is_root()) {
    const auto give = [&](int chunk, Step send) {
      std::vector<Step> steps{std::move(send)};
      if (b.request().compressed) steps.push_back({StepKind::local_copy, 0, {}, true});
      b.add_in_place(chunk, std::move(steps));
    };
    for (const int peer : b.others()) give(peer, {StepKind::send_input, 0, {peer}});
    if (b.world() > 1) give(b.rank(), {StepKind::send_input, 1, b.others()});
    return;
  }
  for (const int peer : b.others()) b.add_in_place(peer, {{StepKind::recv_copy, 1, {peer}}});
  auto rest = b.others();
  std::erase(rest, b.root());
  std::vector<Step> steps{{StepKind::recv_copy, 0, {b.root()}}};
  if (!rest.empty()) steps.push_back({StepKind::forward, 1, std::move(rest)});
  b.add_in_place(b.rank(), std::move(steps));
}

constexpr CollectiveBuilder kCollectives[] = {
    {.collective = Collective::all_reduce, .build = all_reduce, .adds_in_rank_order = true, .uses_shares = true},
    {.collective = Collective::reduce, .build = reduce, .adds_in_rank_order = true},
    {.collective = Collective::broadcast, .build = broadcast, .adds_in_rank_order = true},
};

// A broadcast goes from the root to one rank and from there to another.
CriticalPath longest_path(const PathFinder& paths) {
  if (paths.request.collective != Collective::broadcast) return paths.hops(2);
  const int root = paths.request.root;
  CriticalPath longest;
  for (int rank = 0; rank < paths.request.world; ++rank) {
    if (rank != root) longest = paths.longer(longest, paths.hop(root, rank) + paths.hop_from(rank, root));
  }
  return longest;
}

}  // namespace

extern const AlgorithmEntry kSra = {
    .algorithm = Algorithm::sra,
    .name = "sra",
    .collectives = kCollectives,
    .critical_path = longest_path,
    .chunk_count = [](const Request& request) { return request.world; },
    .reads_mapped_buffers = true,
};

}  // namespace qccl::plan
