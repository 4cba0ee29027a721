// One-shot: every rank sends its data directly to the ranks that need it. Fewest steps, most bytes.
#include "plan/algorithms/builder.h"

namespace qccl::plan {
namespace {

// One lane, because in place a slice must have left before its sum overwrites it.
void all_reduce(Builder& b) {
  std::vector<Step> steps;
  if (b.world() > 1) steps.push_back({StepKind::send_input, 0, b.others()});
  auto reduce = reduce_steps(b.rank(), b.world(), 0, b.request().compressed);
  steps.insert(steps.end(), reduce.begin(), reduce.end());
  b.add_in_place(0, std::move(steps));
}

void reduce(Builder& b) {
  if (!b.is_root()) return b.add_scratch(0, 0, {{StepKind::send_input, 0, {b.root()}}});
  b.add_in_place(0, reduce_steps(b.rank(), b.world(), 0, false));
}

void reduce_scatter(Builder& b) {
  for (const int peer : b.others()) b.add_scratch(peer, b.begin_of(peer), {{StepKind::send_input, 0, {peer}}});
  b.add(b.rank(), b.begin_of(b.rank()), 0, reduce_steps(b.rank(), b.world(), 0, false));
}

void all_gather(Builder& b) {
  const int own = b.rank();
  const Step keep{StepKind::local_copy, 0, {}, b.request().compressed};
  if (b.world() == 1) return b.add(own, 0, b.begin_of(own), {keep});
  // Compressed in place, a slice must have left before its decoded form overwrites it.
  std::vector<Step> give{{StepKind::send_input, 0, b.others()}};
  if (b.request().compressed) {
    give.push_back(keep);
  } else {
    b.add(own, 0, b.begin_of(own), {keep});
  }
  b.add(own, 0, b.begin_of(own), std::move(give));
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

}  // namespace

void build_direct(Builder& builder) {
  switch (builder.request().collective) {
    case Collective::all_reduce: return all_reduce(builder);
    case Collective::reduce: return reduce(builder);
    case Collective::reduce_scatter: return reduce_scatter(builder);
    case Collective::all_gather: return all_gather(builder);
    case Collective::broadcast: return broadcast(builder);
    case Collective::gather: return gather(builder);
    case Collective::scatter: return scatter(builder);
    case Collective::all_to_all: return build_exchange(builder, /*one_at_a_time=*/false);
    case Collective::barrier: return;  // has no elements
  }
}

}  // namespace qccl::plan
