// Binomial trees from or to the root: log2(world) hops. Places count the ranks from the root: the parent of place p is
// p without its lowest bit, and its subtree is the places p .. p + lowest bit - 1. Compressed reductions encode each
// rank's partial sum once.
#include "plan/algorithms/binomial.h"

#include <algorithm>

#include "plan/algorithms/builder.h"

namespace qccl::plan {
namespace {

class Tree {
 public:
  explicit Tree(const Builder& b) : world_(b.world()), root_(b.root()), place_((b.rank() - root_ + world_) % world_) {}

  int parent() const { return rank_at(place_ & (place_ - 1)); }
  // Nearest, with the smallest subtree, first.
  std::vector<int> children() const {
    std::vector<int> found;
    for (int bit = 1; bit < span() && place_ + bit < world_; bit <<= 1) found.push_back(rank_at(place_ + bit));
    return found;
  }
  bool is_below(int rank) const {
    const int place = place_of(rank);
    return place > place_ && place < place_ + span();
  }
  // The child whose subtree holds `rank`.
  int child_towards(int rank) const {
    int step = place_of(rank) - place_;
    while ((step & (step - 1)) != 0) step &= step - 1;
    return rank_at(place_ + step);
  }

 private:
  int span() const { return place_ == 0 ? world_ : place_ & -place_; }
  int rank_at(int place) const { return (place + root_) % world_; }
  int place_of(int rank) const { return (rank - root_ + world_) % world_; }

  const int world_;
  const int root_;
  const int place_;
};

void broadcast(Builder& b, const Tree& tree) {
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

// Adds in the order of places, because subtrees are runs of places.
void reduce(Builder& b, const Tree& tree) {
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

void gather(Builder& b, const Tree& tree) {
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

void scatter(Builder& b, const Tree& tree) {
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

}  // namespace

int binomial_parent(int rank, int root, int world) {
  const int place = (rank - root + world) % world;
  return place == 0 ? -1 : ((place & (place - 1)) + root) % world;
}

void build_binomial(Builder& builder) {
  const Tree tree(builder);
  switch (builder.request().collective) {
    case Collective::reduce: return reduce(builder, tree);
    case Collective::gather: return gather(builder, tree);
    case Collective::scatter: return scatter(builder, tree);
    default: return broadcast(builder, tree);
  }
}

}  // namespace qccl::plan
