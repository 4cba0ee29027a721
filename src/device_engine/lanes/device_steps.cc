#include "device_engine/lanes/device_steps.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.h"
#include "device_engine/lanes/device_compute.h"

namespace qccl::engine {

DeviceSteps::DeviceSteps(const ExecutablePlan& plan, DeviceCompute& compute, InboundStreams& inbound,
                         OutboundStreams& outbound)
    : plan_(plan), compute_(compute), inbound_(inbound), outbound_(outbound), sends_(plan.schedule().lanes.size()) {
  for (std::size_t lane = 0; lane < sends_.size(); ++lane) {
    // A lane has kMostDepth slices on their way, and one whose steps are being taken.
    sends_[lane].reserve((DeviceLayout::kMostDepth + 1) * plan.schedule().lanes[lane].steps.size());
  }
}

// Work that has not ended may still write to the rooms.
DeviceSteps::~DeviceSteps() {
  for (std::vector<Send>& sends : sends_) {
    for (Send& send : sends) std::ranges::for_each(send.rooms, &Reservation::forget);
  }
}

bool DeviceSteps::may_begin(std::size_t lane) const { return compute_.lane(lane).has_room(); }
bool DeviceSteps::keeps_payload(std::size_t lane) const { return compute_.lane(lane).arrivals().last_stays(); }
Status DeviceSteps::submit() { return compute_.submit(); }
bool DeviceSteps::is_idle() const { return compute_.is_idle(); }

std::byte* DeviceSteps::find_place(std::size_t lane, std::size_t step, std::uint64_t slice) const {
  return compute_.lane(lane).find_place(step, slice);
}

Result<bool> DeviceSteps::look() {
  QCCL_ASSIGN(const bool ended, compute_.look());
  if (ended) release_read();
  return ended;
}

void DeviceSteps::release_read() {
  inbound_.release_read(
      [&](std::size_t lane, std::uint64_t slice) { return compute_.lane(lane).tickets().is_done(slice); });
}

bool DeviceSteps::begin_send(std::size_t lane, std::uint64_t slice, std::size_t step) {
  std::vector<Send>& sends = sends_[lane];
  sends.push_back({slice, step});
  Send& send = sends.back();
  if (compute_.lane(lane).takes_frames(step)) hold_rooms(lane, send);
  std::array<Bytes, DeviceLane::kMostFrames> frames{};
  for (std::size_t i = 0; i < frames.size(); ++i) frames[i] = send.rooms[i] ? payload_room(send.rooms[i]) : Bytes{};
  const std::size_t peers = plan_.schedule().lanes[lane].steps[step].peers.size();
  const bool begins = compute_.lane(lane).begin_payload(step, std::span(frames).first(std::min(peers, frames.size())));
  if (!begins) sends.pop_back();
  return begins;
}

void DeviceSteps::hold_rooms(std::size_t lane, Send& send) {
  const plan::Lane& planned = plan_.schedule().lanes[lane];
  const plan::Step& step = planned.steps[send.step];
  const std::size_t bytes = plan_.payload_limit(plan_.slice_length(planned.count, send.slice), step.raw);
  for (std::size_t peer = 0; peer < std::min(step.peers.size(), send.rooms.size()); ++peer) {
    send.rooms[peer] = outbound_.hold_slice(stream_of(lane, send, peer), bytes);
  }
}

LaneAdvance DeviceSteps::send(std::size_t lane, std::uint64_t& sent_bytes) {
  LaneAdvance result;
  const plan::Lane& planned = plan_.schedule().lanes[lane];
  std::vector<Send>& sends = sends_[lane];
  for (; !sends.empty(); sends.erase(sends.begin())) {
    Send& first = sends.front();
    const ConstBytes place = compute_.lane(lane).find_payload(first.slice);
    if (place.data() == nullptr) return result;
    if (!first.bytes) first.bytes = measure(lane, first, place);
    const ConstBytes payload = place.first(*first.bytes);
    const auto& peers = planned.steps[first.step].peers;
    for (; first.sent < peers.size(); ++first.sent) {
      Reservation* const held = first.sent < first.rooms.size() ? &first.rooms[first.sent] : nullptr;
      const StepStatus status = send_payload(stream_of(lane, first, first.sent), payload, held);
      if (status == StepStatus::no_room) result.starved_by = GroupRank(peers[first.sent]);
      if (status != StepStatus::done) return result;
      result.moved = true;
      sent_bytes += plan_.slice_length(planned.count, first.slice) * element_bytes(plan_.call().type);
    }
    compute_.lane(lane).note_sent(first.slice);
  }
  return result;
}

// A payload that was made, by its headers: a job leaves it in all rooms that were held, and at `place` if a peer had
// none.
std::size_t DeviceSteps::measure(std::size_t lane, const Send& send, ConstBytes place) const {
  const plan::Lane& planned = plan_.schedule().lanes[lane];
  const Reservation& room = send.rooms.front();
  const ConstBytes made = room ? ConstBytes(payload_room(room)) : place;
  const auto bytes =
      plan_.find_payload_bytes(made, plan_.slice_length(planned.count, send.slice), planned.steps[send.step].raw);
  QCCL_CHECK(bytes);
  return *bytes;
}

// `held`: room that already has the payload; none or null: the payload lies elsewhere alone.
StepStatus DeviceSteps::send_payload(std::size_t stream, ConstBytes payload, Reservation* held) {
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

void DeviceSteps::drop() {
  if (has_none() || !is_idle()) return;
  inbound_.release_read([](std::size_t, std::uint64_t) { return true; });
  for (std::vector<Send>& sends : sends_) sends.clear();
}

}  // namespace qccl::engine
