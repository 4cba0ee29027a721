// Recursive doubling: the ranks swap partial sums with those at distance one, then two, then four, so that every rank
// has the whole sum after log2(N) swaps (Thakur, Rabenseifner, Gropp 2005). Both sides of a swap add the same two
// numbers, and addition of two is commutative. If N is no power of two, the first ranks pair up: the odd ones give
// their part to the rank before them in advance, and get the result afterwards. Compressed, every swap would encode a
// sum anew, so one-shot is built instead.
#include <algorithm>
#include <bit>

#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

// The ranks that swap: a power of two of them have virtual ranks, in rank order. Each of the others, the odd ones of
// the first 2 * extra(), gives its part to the rank before it.
class Swaps {
 public:
  explicit Swaps(int world)
      : ranks_(static_cast<int>(std::bit_floor(static_cast<unsigned>(world)))), extra_(world - ranks_) {}

  int ranks() const { return ranks_; }
  int extra() const { return extra_; }
  int count() const { return std::countr_zero(static_cast<unsigned>(ranks_)); }
  int rank_at(int virtual_rank) const { return virtual_rank + std::min(virtual_rank, extra_); }
  // -1 if the rank does not swap.
  int virtual_rank_of(int rank) const {
    if (rank >= 2 * extra_) return rank - extra_;
    return rank % 2 == 0 ? rank / 2 : -1;
  }

 private:
  int ranks_;
  int extra_;
};

void all_reduce(Builder& b) {
  const Swaps swaps(b.world());
  const int own = swaps.virtual_rank_of(b.rank());
  const auto result_phase = static_cast<std::uint16_t>(swaps.count() + 1);
  if (own < 0) {
    const Step give{StepKind::send_input, 0, {b.rank() - 1}};
    const Step take{StepKind::recv_copy, result_phase, {b.rank() - 1}};
    return b.add_in_every_lane({give, take});
  }
  std::vector<Step> steps{{StepKind::local_reduce, 0, {}}};
  const bool has_partner = own < swaps.extra();
  if (has_partner) steps.push_back({StepKind::recv_reduce, 0, {b.rank() + 1}});
  for (int swap = 0; swap < swaps.count(); ++swap) {
    const int peer = swaps.rank_at(own ^ 1 << swap);
    const auto phase = static_cast<std::uint16_t>(swap + 1);
    steps.push_back({StepKind::send_sum, phase, {peer}, /*quantized=*/true});
    steps.push_back({StepKind::recv_reduce, phase, {peer}});
  }
  steps.push_back({StepKind::finish, 0, {}});
  if (has_partner) steps.push_back({StepKind::send_result, result_phase, {b.rank() + 1}});
  b.add_in_every_lane(steps);
}

constexpr CollectiveBuilder kCollectives[] = {{Collective::all_reduce, all_reduce}};

// For each virtual rank: from its partner to it, through all swaps, and back to the partner.
CriticalPath longest_path(const PathFinder& paths) {
  const Swaps swaps(paths.request.world);
  const auto partner_hop = [&](int virtual_rank) {
    const int rank = swaps.rank_at(virtual_rank);
    return virtual_rank < swaps.extra() ? paths.hop(rank, rank + 1) : CriticalPath{};
  };
  std::vector<CriticalPath> ends;  // by virtual rank
  for (int own = 0; own < swaps.ranks(); ++own) ends.push_back(partner_hop(own));
  for (int swap = 0; swap < swaps.count(); ++swap) {
    const std::vector<CriticalPath> before = ends;
    for (int own = 0; own < swaps.ranks(); ++own) {
      const int peer = own ^ 1 << swap;
      const CriticalPath from_peer =
          before[static_cast<std::size_t>(peer)] + paths.hop(swaps.rank_at(peer), swaps.rank_at(own));
      ends[static_cast<std::size_t>(own)] = paths.longer(before[static_cast<std::size_t>(own)], from_peer);
    }
  }
  CriticalPath longest;
  for (int own = 0; own < swaps.ranks(); ++own) {
    longest = paths.longer(longest, ends[static_cast<std::size_t>(own)] + partner_hop(own));
  }
  return longest;
}

}  // namespace

extern const AlgorithmEntry kRecursiveDoubling = {
    .algorithm = Algorithm::recursive_doubling,
    .name = "recursive_doubling",
    .collectives = kCollectives,
    .critical_path = longest_path,
    .chunk_count = lanes_of_all_reduce,
    .rounds_at_every_hop = true,
    .compressed_as = Algorithm::one_shot,
};

}  // namespace qccl::plan
