// Recursive doubling: the ranks swap partial sums with those one place away, then two, then four, so that every rank
// has the whole sum after log2(N) swaps (Thakur, Rabenseifner, Gropp 2005). Both sides of a swap add the same two
// numbers, and addition of two is commutative. If N is no power of two, the first ranks pair up: the odd ones give
// their part to the rank before them in advance, and get the result afterwards.
#include "plan/algorithms/doubling.h"

#include <bit>

#include "plan/algorithms/builder.h"

namespace qccl::plan {

Doubling::Doubling(int world)
    : places_(static_cast<int>(std::bit_floor(static_cast<unsigned>(world)))), extra_(world - places_) {}

int Doubling::place_of(int rank) const {
  if (rank >= 2 * extra_) return rank - extra_;
  return rank % 2 == 0 ? rank / 2 : -1;
}

void build_doubling(Builder& b) {
  const Doubling doubling(b.world());
  const int place = doubling.place_of(b.rank());
  const auto result_phase = static_cast<std::uint16_t>(doubling.swaps() + 1);
  if (place < 0) {
    return b.add_in_place(
        0, {{StepKind::send_input, 0, {b.rank() - 1}}, {StepKind::recv_copy, result_phase, {b.rank() - 1}}});
  }
  std::vector<Step> steps{{StepKind::local_reduce, 0, {}}};
  const bool has_partner = place < doubling.extra();
  if (has_partner) steps.push_back({StepKind::recv_reduce, 0, {b.rank() + 1}});
  for (int swap = 0; swap < doubling.swaps(); ++swap) {
    const int peer = doubling.rank_at(place ^ 1 << swap);
    const auto phase = static_cast<std::uint16_t>(swap + 1);
    steps.push_back({StepKind::send_sum, phase, {peer}, /*quantized=*/true});
    steps.push_back({StepKind::recv_reduce, phase, {peer}});
  }
  steps.push_back({StepKind::finish, 0, {}});
  if (has_partner) steps.push_back({StepKind::send_result, result_phase, {b.rank() + 1}});
  b.add_in_place(0, std::move(steps));
}

}  // namespace qccl::plan
