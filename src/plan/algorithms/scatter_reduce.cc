// SRA: every rank owns one chunk. Phase 0 brings each chunk to its owner, phase 1 from there to its destinations. Each
// element is encoded at most twice, for any world.
#include <algorithm>

#include "plan/algorithms/builder.h"

namespace qccl::plan {
namespace {

void scatter(Builder& b) {
  for (const int peer : b.others()) b.add_scratch(peer, b.begin_of(peer), {{StepKind::send_input, 0, {peer}}});
}

void all_reduce(Builder& b) {
  scatter(b);
  auto own = reduce_steps(b.rank(), b.world(), 0, false);
  if (b.world() > 1) own.push_back({StepKind::send_result, 1, b.others()});
  b.add_in_place(b.rank(), std::move(own));
  for (const int peer : b.others()) b.add_in_place(peer, {{StepKind::recv_copy, 1, {peer}}});
}

void reduce(Builder& b) {
  scatter(b);
  auto own = reduce_steps(b.rank(), b.world(), 0, false);
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
  rest.erase(std::find(rest.begin(), rest.end(), b.root()));
  std::vector<Step> steps{{StepKind::recv_copy, 0, {b.root()}}};
  if (!rest.empty()) steps.push_back({StepKind::forward, 1, std::move(rest)});
  b.add_in_place(b.rank(), std::move(steps));
}

}  // namespace

void build_scatter_reduce(Builder& builder) {
  switch (builder.request().collective) {
    case Collective::reduce: return reduce(builder);
    case Collective::broadcast: return broadcast(builder);
    default: return all_reduce(builder);
  }
}

}  // namespace qccl::plan
