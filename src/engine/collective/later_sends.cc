#include "engine/collective/later_sends.h"

#include "engine/compute/device_layout.h"

namespace qccl::engine {

LaterSends::LaterSends(const ExecutablePlan& plan, LaterWork& work, OutboundStreams& streams)
    : plan_(plan), work_(work), streams_(streams), lanes_(plan.schedule().lanes.size()) {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane].reserve(DeviceLayout::kMostDepth * plan.schedule().lanes[lane].steps.size());
  }
}

void LaterSends::clear() {
  for (std::vector<Send>& lane : lanes_) lane.clear();
}

Result<bool> LaterSends::look(LaneScheduler& scheduler) {
  QCCL_ASSIGN(const bool ended, work_.look());
  for (std::size_t lane = 0; ended && lane < lanes_.size(); ++lane) scheduler.wake(lane);
  return ended;
}

bool LaterSends::begin(std::size_t lane, std::uint64_t slice, std::size_t step) {
  if (!work_.begin_payload(lane, step)) return false;
  lanes_[lane].push_back({slice, step});
  return true;
}

LaneAdvance LaterSends::send(std::size_t lane, std::uint64_t& sent_bytes) {
  LaneAdvance result;
  const plan::Lane& planned = plan_.schedule().lanes[lane];
  std::vector<Send>& sends = lanes_[lane];
  for (; !sends.empty(); sends.erase(sends.begin())) {
    auto& [slice, step, sent] = sends.front();
    const ConstBytes payload = work_.find_payload(lane, slice);
    if (payload.data() == nullptr) return result;
    const auto& peers = planned.steps[step].peers;
    for (; sent < peers.size(); ++sent) {
      const StepStatus status = send_payload(plan_.streams().first[lane][step] + sent, payload);
      if (status == StepStatus::no_room) result.starved_by = GroupRank(peers[sent]);
      if (status != StepStatus::done) return result;
      result.moved = true;
      sent_bytes += plan_.slice_length(planned.count, slice) * element_bytes(plan_.call().type);
    }
    work_.note_sent(lane, slice);
  }
  return result;
}

StepStatus LaterSends::send_payload(std::size_t stream, ConstBytes payload) {
  const auto permission = streams_.may_send(stream, payload.size());
  if (permission == OutboundStreams::Permission::awaited) return StepStatus::waits;
  if (permission == OutboundStreams::Permission::none) return StepStatus::no_room;
  if (streams_.begin_slice(stream, payload.size()).data() == nullptr) return StepStatus::no_room;
  streams_.finish_slice(stream, payload, permission == OutboundStreams::Permission::eager);
  return StepStatus::done;
}

}  // namespace qccl::engine
