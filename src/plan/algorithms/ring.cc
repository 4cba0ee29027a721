// Ring: rank r sends everything to rank r + 1. A reduction's chunk c starts at rank c + 1, each rank adds its own part
// to the partial sum, and rank c, the last, owns the result (NCCL's and QNCCL's order). Compressed partial sums are
// encoded anew at every hop; results and gathered pieces travel as the bytes that their owner encoded.
#include <algorithm>

#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

int next(const Builder& b) { return (b.rank() + 1) % b.world(); }
int previous(const Builder& b) { return (b.rank() + b.world() - 1) % b.world(); }

// The chunks of the other ranks in the order in which they come by: those that have the longest way before them first.
std::vector<int> passing(const Builder& b) {
  auto chunks = b.others();
  std::ranges::reverse(chunks);
  return chunks;
}

// This rank's part in the partial sums of a chunk that another rank owns.
void pass_sum(Builder& b, int chunk) {
  const bool starts = (chunk + 1) % b.world() == b.rank();
  if (starts) return b.add_scratch(chunk, b.begin_of(chunk), {{StepKind::send_input, 0, {next(b)}}});
  b.add_scratch(
      chunk, b.begin_of(chunk),
      {{StepKind::recv_reduce, 0, {previous(b)}}, {StepKind::local_reduce, 0, {}}, {StepKind::send_sum, 0, {next(b)}}});
}

std::vector<Step> own_sum(const Builder& b) {
  if (b.world() == 1) return {{StepKind::local_reduce, 0, {}}, {StepKind::finish, 0, {}}};
  return {{StepKind::recv_reduce, 0, {previous(b)}}, {StepKind::local_reduce, 0, {}}, {StepKind::finish, 0, {}}};
}

// A chunk that travels around in phase 1; the rank before its owner is the last.
std::vector<Step> pass_on(const Builder& b, int chunk) {
  std::vector<Step> steps{{StepKind::recv_copy, 1, {previous(b)}}};
  if (next(b) != chunk) steps.push_back({StepKind::forward, 1, {next(b)}});
  return steps;
}

void reduce_scatter(Builder& b) {
  for (const int chunk : passing(b)) pass_sum(b, chunk);
  b.add(b.rank(), b.begin_of(b.rank()), 0, own_sum(b));
}

void all_reduce(Builder& b) {
  for (const int chunk : passing(b)) pass_sum(b, chunk);
  auto own = own_sum(b);
  if (b.world() > 1) own.push_back({StepKind::send_result, 1, {next(b)}});
  b.add_in_place(b.rank(), std::move(own));
  for (const int chunk : passing(b)) b.add_in_place(chunk, pass_on(b, chunk));
}

void all_gather(Builder& b) {
  const int own = b.rank();
  std::vector<Step> give;
  if (b.world() > 1) give.push_back({StepKind::send_input, 1, {next(b)}});
  give.push_back({StepKind::local_copy, 0, {}, b.request().compressed});
  b.add(own, 0, b.begin_of(own), std::move(give));
  for (const int chunk : passing(b)) b.add(chunk, 0, b.begin_of(chunk), pass_on(b, chunk));
}

constexpr CollectiveBuilder kCollectives[] = {
    {Collective::all_reduce, all_reduce},
    {Collective::reduce_scatter, reduce_scatter},
    {Collective::all_gather, all_gather},
};

// All edges of the ring except the one where the chunk starts; in an all_reduce then all edges again except the one
// before its owner.
CriticalPath longest_path(const PathFinder& paths) {
  const int world = paths.request.world;
  const auto edge = [&](int rank) { return paths.hop(rank, (rank + 1) % world); };
  CriticalPath around;
  for (int rank = 0; rank < world; ++rank) around = around + edge(rank);
  const auto without = [&](int rank) { return around + -1 * edge(rank); };
  CriticalPath longest;
  for (int owner = 0; owner < world; ++owner) {
    CriticalPath path = without(owner);
    if (paths.request.collective == Collective::all_reduce) path = path + without((owner + world - 1) % world);
    longest = paths.longer(longest, path);
  }
  return longest;
}

}  // namespace

extern const AlgorithmEntry kRing = {
    .algorithm = Algorithm::ring,
    .name = "ring",
    .collectives = kCollectives,
    .critical_path = longest_path,
    .chunk_count = [](const Request& request) { return request.world; },
    .rounds_at_every_hop = true,
    .hides_latency = true,
};

}  // namespace qccl::plan
