// Double binary tree: half of the data is summed up one tree and sent down again; the other half uses a second tree, in
// which the inner ranks of the first are leaves (Sanders, Speck, Traeff 2009; the shape is NCCL's). Compressed, every
// rank encodes its partial sum once, and the root's encoded result travels down unchanged.
#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

// The parent in the binary tree over virtual ranks 0..n-1 whose in-order walk is 0..n-1.
int virtual_parent(int virtual_rank, int world) {
  const int bit = virtual_rank & -virtual_rank;
  const int up = (virtual_rank ^ bit) | (bit << 1);
  return up < world ? up : virtual_rank ^ bit;
}

// The rank above `rank` in tree 0 or 1, or -1 for the root. In the first tree virtual ranks are ranks; the second one
// is mirrored for an even world, and shifted by one for an odd one.
int parent_of(int rank, int tree, int world) {
  const bool is_mirrored = world % 2 == 0;
  const int shifted = is_mirrored ? world - 1 - rank : (rank + world - 1) % world;
  const int virtual_rank = tree == 0 ? rank : shifted;
  if (virtual_rank == 0) return -1;
  const int up = virtual_parent(virtual_rank, world);
  if (tree == 0) return up;
  return is_mirrored ? world - 1 - up : (up + 1) % world;
}

std::vector<int> children_of(int rank, int tree, int world) {
  std::vector<int> found;
  for (int other = 0; other < world; ++other) {
    if (parent_of(other, tree, world) == rank) found.push_back(other);
  }
  return found;
}

// Adds in the order lower children, this rank, higher children.
std::vector<Step> partial_sum(const Builder& b, const std::vector<int>& below) {
  std::vector<Step> steps;
  for (const int child : below) {
    if (child < b.rank()) steps.push_back({StepKind::recv_reduce, 0, {child}});
  }
  steps.push_back({StepKind::local_reduce, 0, {}});
  for (const int child : below) {
    if (child > b.rank()) steps.push_back({StepKind::recv_reduce, 0, {child}});
  }
  return steps;
}

void build(Builder& b, int tree) {
  const auto below = children_of(b.rank(), tree, b.world());
  const int parent = parent_of(b.rank(), tree, b.world());
  auto up = partial_sum(b, below);
  if (parent < 0) {
    up.push_back({StepKind::finish, 0, {}});
    if (!below.empty()) up.push_back({StepKind::send_result, 1, below});
    return b.add_in_place(tree, std::move(up));
  }
  if (below.empty()) up.clear();
  up.push_back({below.empty() ? StepKind::send_input : StepKind::send_sum, 0, {parent}});
  b.add_scratch(tree, b.begin_of(tree), std::move(up));
  std::vector<Step> down{{StepKind::recv_copy, 1, {parent}}};
  if (!below.empty()) down.push_back({StepKind::forward, 1, below});
  b.add_in_place(tree, std::move(down));
}

void all_reduce(Builder& b) {
  for (const int tree : {0, 1}) build(b, tree);
}

constexpr CollectiveBuilder kCollectives[] = {{Collective::all_reduce, all_reduce}};

CriticalPath longest_path(const PathFinder& paths) {
  CriticalPath longest;
  for (const int tree : {0, 1}) {
    const CriticalPath up = paths.deepest([&](int rank) { return parent_of(rank, tree, paths.request.world); });
    longest = paths.longer(longest, up + up);
  }
  return longest;
}

}  // namespace

extern const AlgorithmEntry kTree = {
    .algorithm = Algorithm::tree,
    .name = "tree",
    .collectives = kCollectives,
    .critical_path = longest_path,
    .chunk_count = [](const Request&) { return 2; },
    .rounds_at_every_hop = true,
};

}  // namespace qccl::plan
