// Double binary tree: half of the data is summed up one tree and sent down again; the other half uses a second tree, in
// which the inner ranks of the first are leaves (Sanders, Speck, Traeff 2009; the shape is NCCL's). Compressed, every
// rank encodes its partial sum once, and the root's encoded result travels down unchanged.
#include "plan/algorithms/tree.h"

#include <algorithm>

#include "plan/algorithms/builder.h"

namespace qccl::plan {
namespace {

// A rank's parent in the binary tree over places 0..n-1 whose in-order walk is 0..n-1.
int parent_place(int place, int world) {
  if (place == 0) return -1;
  const int bit = place & -place;
  const int up = (place ^ bit) | (bit << 1);
  return up < world ? up : place ^ bit;
}

// The second tree: mirrored for an even world, shifted by one for an odd one.
int place_of(int rank, int tree, int world) {
  if (tree == 0) return rank;
  return world % 2 == 0 ? world - 1 - rank : (rank + world - 1) % world;
}

int rank_at(int place, int tree, int world) {
  if (tree == 0) return place;
  return world % 2 == 0 ? world - 1 - place : (place + 1) % world;
}

std::vector<int> children(int rank, int tree, int world) {
  std::vector<int> found;
  for (int other = 0; other < world; ++other) {
    if (tree_parent(other, tree, world) == rank) found.push_back(other);
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
  const auto below = children(b.rank(), tree, b.world());
  const int parent = tree_parent(b.rank(), tree, b.world());
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

}  // namespace

int tree_parent(int rank, int tree, int world) {
  const int parent = parent_place(place_of(rank, tree, world), world);
  return parent < 0 ? -1 : rank_at(parent, tree, world);
}

void build_tree(Builder& builder) {
  for (const int tree : {0, 1}) build(builder, tree);
}

}  // namespace qccl::plan
