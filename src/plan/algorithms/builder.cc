#include "plan/algorithms/builder.h"

#include <utility>

namespace qccl::plan {

std::vector<int> Builder::others() const {
  std::vector<int> peers;
  for (int distance = 1; distance < world(); ++distance) peers.push_back((rank_ + distance) % world());
  return peers;
}

void Builder::add_whole(Lane lane, int chunk) {
  lane.chunk = static_cast<std::uint32_t>(chunk);
  lane.count = range_of(chunk).count;
  if (lane.count > 0) add(std::move(lane));
}

void Builder::add_own_piece(std::vector<int> peers) {
  const auto add_own = [this](std::vector<Step> steps) { add(rank_, 0, begin_of(rank_), std::move(steps)); };
  const Step keep{StepKind::local_copy, 0, {}, request_.compressed};
  if (peers.empty()) return add_own({keep});
  std::vector<Step> give{{StepKind::send_input, 0, std::move(peers)}};
  if (request_.compressed) {
    give.push_back(keep);  // in place, a slice must have left before its decoded form overwrites it
  } else {
    add_own({keep});
  }
  add_own(std::move(give));
}

void Builder::order_by_slice(int first) {
  for (int lane = first + 1; lane <= last_lane(); ++lane) {
    schedule_.lanes[static_cast<std::size_t>(lane)].after = lane - 1;
    schedule_.lanes[static_cast<std::size_t>(lane)].slice_by_slice = true;
  }
}

std::vector<Step> Builder::reduce_steps(bool quantize_own) const {
  std::vector<Step> steps;
  for (int source = 0; source < world(); ++source) {
    if (source == rank_) {
      steps.push_back({StepKind::local_reduce, 0, {}, quantize_own});
    } else {
      steps.push_back({StepKind::recv_reduce, 0, {source}});
    }
  }
  steps.push_back({StepKind::finish, 0, {}});
  return steps;
}

}  // namespace qccl::plan
