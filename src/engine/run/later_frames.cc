#include "engine/run/later_frames.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/compute/device_layout.h"

namespace qccl::engine {

LaterFrames::LaterFrames(const ExecutablePlan& plan, LaterWork& work, InboundStreams& inbound,
                         OutboundStreams& outbound)
    : plan_(plan), work_(work), inbound_(inbound), outbound_(outbound), lanes_(plan.schedule().lanes.size()) {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    // A lane has kMostDepth slices on their way, and one whose steps are being taken.
    lanes_[lane].reserve((DeviceLayout::kMostDepth + 1) * plan.schedule().lanes[lane].steps.size());
  }
}

// Work that has not ended may still write to the rooms.
LaterFrames::~LaterFrames() {
  for (std::vector<Send>& sends : lanes_) {
    for (Send& send : sends) std::ranges::for_each(send.rooms, &Reservation::forget);
  }
}

Result<bool> LaterFrames::look(LaneScheduler& scheduler) {
  QCCL_ASSIGN(const bool ended, work_.look());
  if (ended) release_read();
  for (std::size_t lane = 0; ended && lane < lanes_.size(); ++lane) scheduler.wake(lane);
  return ended;
}

void LaterFrames::release_read() {
  inbound_.release_read([&](std::size_t lane, std::uint64_t slice) { return work_.has_read(lane, slice); });
}

bool LaterFrames::begin(std::size_t lane, std::uint64_t slice, std::size_t step) {
  std::vector<Send>& sends = lanes_[lane];
  sends.push_back({slice, step});
  Send& send = sends.back();
  if (work_.takes_frames(lane, step)) hold_rooms(lane, send);
  std::array<Bytes, LaterWork::kMostFrames> frames{};
  for (std::size_t i = 0; i < frames.size(); ++i) frames[i] = send.rooms[i] ? payload_room(send.rooms[i]) : Bytes{};
  const std::size_t peers = plan_.schedule().lanes[lane].steps[step].peers.size();
  const bool begins = work_.begin_payload(lane, step, std::span(frames).first(std::min(peers, frames.size())));
  if (!begins) sends.pop_back();
  return begins;
}

void LaterFrames::hold_rooms(std::size_t lane, Send& send) {
  const plan::Lane& planned = plan_.schedule().lanes[lane];
  const plan::Step& step = planned.steps[send.step];
  const std::size_t bytes = plan_.payload_limit(plan_.slice_length(planned.count, send.slice), step.raw);
  for (std::size_t peer = 0; peer < std::min(step.peers.size(), send.rooms.size()); ++peer) {
    send.rooms[peer] = outbound_.hold_slice(stream_of(lane, send, peer), bytes);
  }
}

LaneAdvance LaterFrames::send(std::size_t lane, std::uint64_t& sent_bytes) {
  LaneAdvance result;
  const plan::Lane& planned = plan_.schedule().lanes[lane];
  std::vector<Send>& sends = lanes_[lane];
  for (; !sends.empty(); sends.erase(sends.begin())) {
    Send& first = sends.front();
    const ConstBytes payload = work_.find_payload(lane, first.slice);
    if (payload.data() == nullptr) return result;
    const auto& peers = planned.steps[first.step].peers;
    for (; first.sent < peers.size(); ++first.sent) {
      Reservation* const held = first.sent < first.rooms.size() ? &first.rooms[first.sent] : nullptr;
      const StepStatus status = send_payload(stream_of(lane, first, first.sent), payload, held);
      if (status == StepStatus::no_room) result.starved_by = GroupRank(peers[first.sent]);
      if (status != StepStatus::done) return result;
      result.moved = true;
      sent_bytes += plan_.slice_length(planned.count, first.slice) * element_bytes(plan_.call().type);
    }
    work_.note_sent(lane, first.slice);
  }
  return result;
}

// `held`: room that already has the payload; none or null: the payload lies elsewhere alone.
StepStatus LaterFrames::send_payload(std::size_t stream, ConstBytes payload, Reservation* held) {
  const auto permission = outbound_.may_send(stream, payload.size());
  if (permission == OutboundStreams::Permission::awaited) return StepStatus::waits;
  if (permission == OutboundStreams::Permission::none) return StepStatus::no_room;
  const bool eagerly = permission == OutboundStreams::Permission::eager;
  const bool is_held = held != nullptr && *held;
  Reservation room = is_held ? std::move(*held) : outbound_.begin_slice(stream, payload.size());
  if (!room) return StepStatus::no_room;
  if (is_held) payload = payload_room(room).first(payload.size());
  outbound_.finish_slice(stream, std::move(room), payload, eagerly);
  return StepStatus::done;
}

void LaterFrames::drop() {
  if (has_none() || !work_.is_idle()) return;
  inbound_.release_read([](std::size_t, std::uint64_t) { return true; });
  for (std::vector<Send>& sends : lanes_) sends.clear();
}

}  // namespace qccl::engine
