// Binomial trees from or to the root: log2(world) hops. Virtual ranks count from the root: the parent of v is v without
// its lowest bit, and v's subtree is v .. v + lowest bit - 1. Compressed reductions encode each rank's partial sum
// once.
#include <algorithm>
#include <bit>

#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

class Tree {
 public:
  explicit Tree(const Builder& b) : Tree(b.request(), b.rank()) {}
  Tree(const Request& request, int rank) : world_(request.world), root_(request.root), own_(virtual_rank_of(rank)) {}

  int parent() const { return own_ == 0 ? -1 : rank_at(own_ & (own_ - 1)); }
  // Nearest, with the smallest subtree, first.
  std::vector<int> children() const {
    std::vector<int> found;
    for (int bit = 1; bit < span() && own_ + bit < world_; bit <<= 1) found.push_back(rank_at(own_ + bit));
    return found;
  }
  bool is_below(int rank) const {
    const int other = virtual_rank_of(rank);
    return other > own_ && other < own_ + span();
  }
  // The child whose subtree holds `rank`.
  int child_towards(int rank) const {
    const auto distance = static_cast<unsigned>(virtual_rank_of(rank) - own_);
    return rank_at(own_ + static_cast<int>(std::bit_floor(distance)));
  }

 private:
  int span() const { return own_ == 0 ? world_ : own_ & -own_; }
  int rank_at(int virtual_rank) const { return (virtual_rank + root_) % world_; }
  int virtual_rank_of(int rank) const { return (rank - root_ + world_) % world_; }

  const int world_;
  const int root_;
  const int own_;  // virtual rank
};

void broadcast(Builder& b) {
  const Tree tree(b);
  auto below = tree.children();
  std::reverse(below.begin(), below.end());  // the largest subtree first
  if (b.is_root()) {
    std::vector<Step> steps{{StepKind::send_input, 0, std::move(below)}};
    if (b.request().compressed) steps.push_back({StepKind::local_copy, 0, {}, true});
    if (b.world() > 1) b.add_in_place(0, std::move(steps));
    return;
  }
  std::vector<Step> steps{{StepKind::recv_copy, 0, {tree.parent()}}};
  if (!below.empty()) steps.push_back({StepKind::forward, 0, std::move(below)});
  b.add_in_place(0, std::move(steps));
}

// Adds in the order of virtual ranks, because those of a subtree are consecutive.
void reduce(Builder& b) {
  const Tree tree(b);
  std::vector<Step> steps{{StepKind::local_reduce, 0, {}}};
  for (const int child : tree.children()) steps.push_back({StepKind::recv_reduce, 0, {child}});
  if (b.is_root()) {
    steps.push_back({StepKind::finish, 0, {}});
    return b.add_in_place(0, std::move(steps));
  }
  if (steps.size() == 1) return b.add_scratch(0, 0, {{StepKind::send_input, 0, {tree.parent()}}});
  steps.push_back({StepKind::send_sum, 0, {tree.parent()}});
  b.add_scratch(0, 0, std::move(steps));
}

void gather(Builder& b) {
  const Tree tree(b);
  const int own = b.rank();
  if (b.is_root()) {
    b.add(own, 0, b.begin_of(own), {{StepKind::local_copy, 0, {}}});
  } else {
    b.add_scratch(own, 0, {{StepKind::send_input, 0, {tree.parent()}}});
  }
  for (const int rank : b.others()) {
    if (!tree.is_below(rank)) continue;
    const Step take{StepKind::recv_copy, 0, {tree.child_towards(rank)}};
    if (b.is_root()) {
      b.add(rank, 0, b.begin_of(rank), {take});
    } else {
      b.add_scratch(rank, 0, {take, {StepKind::forward, 0, {tree.parent()}}});
    }
  }
}

void scatter(Builder& b) {
  const Tree tree(b);
  const int own = b.rank();
  if (b.is_root()) {
    b.add(own, b.begin_of(own), 0, {{StepKind::local_copy, 0, {}}});
  } else {
    b.add(own, 0, 0, {{StepKind::recv_copy, 0, {tree.parent()}}});
  }
  for (const int rank : b.others()) {
    if (!tree.is_below(rank)) continue;
    const int child = tree.child_towards(rank);
    if (b.is_root()) {
      b.add_scratch(rank, b.begin_of(rank), {{StepKind::send_input, 0, {child}}});
    } else {
      b.add_scratch(rank, 0, {{StepKind::recv_copy, 0, {tree.parent()}}, {StepKind::forward, 0, {child}}});
    }
  }
}

constexpr CollectiveBuilder kCollectives[] = {
    {Collective::broadcast, broadcast},
    {Collective::reduce, reduce},
    {Collective::gather, gather},
    {Collective::scatter, scatter},
};

}  // namespace

extern const AlgorithmEntry kBinomial = {
    .algorithm = Algorithm::binomial,
    .name = "binomial",
    .collectives = kCollectives,
    .critical_path =
        [](const PathFinder& paths) {
          return paths.deepest([&](int rank) { return Tree(paths.request, rank).parent(); });
        },
    .rounds_at_every_hop = true,
};

}  // namespace qccl::plan
