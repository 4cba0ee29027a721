#include "engine/collective/outbound_streams.h"

#include <algorithm>

namespace qccl::engine {

using wire::FrameHeader;
using wire::FrameKind;

void OutboundStreams::begin(const FrameHeader& call) {
  call_ = call;
  has_announced_ = false;
  std::ranges::fill(states_, State{});
}

bool OutboundStreams::announce() {
  if (has_announced_) return false;
  has_announced_ = true;
  bool moved = false;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!streams_[i].announces || states_[i].requested) continue;
    const bool has_gone = request(i);
    has_announced_ &= has_gone;
    moved |= has_gone;
  }
  return moved;
}

bool OutboundStreams::request(std::size_t stream) {
  State& state = states_[stream];
  const FrameHeader header = frame_header(call_, FrameKind::request, streams_[stream], state.sent);
  return state.requested = frame_sender_.send_control(peer_of(stream), header);
}

std::optional<std::size_t> OutboundStreams::on_grant(GroupRank peer, const FrameHeader& header) {
  const std::size_t index = streams_.find(peer, header.phase, header.chunk);
  if (index == StreamList::kNone || header.slice > streams_[index].slices) return std::nullopt;
  states_[index].granted = std::max<std::uint64_t>(states_[index].granted, header.slice);
  return streams_[index].lane;
}

OutboundStreams::Permission OutboundStreams::may_send(std::size_t stream, std::size_t bytes) {
  const State& state = states_[stream];
  if (state.sent < state.granted) return Permission::granted;
  if (!streams_[stream].eager || state.requested) return Permission::awaited;
  if (frame_sender_.eager_room(peer_of(stream), bytes)) return Permission::eager;
  return request(stream) ? Permission::awaited : Permission::none;
}

Bytes OutboundStreams::begin_slice(std::size_t stream, std::size_t bytes) {
  return frame_sender_.begin(peer_of(stream), bytes, TrafficClass::data);
}

void OutboundStreams::finish_slice(std::size_t stream, ConstBytes payload, bool eagerly) {
  FrameHeader header = frame_header(call_, FrameKind::data, streams_[stream], states_[stream].sent++);
  if (eagerly) {
    header.phase |= kEagerFlag;
    frame_sender_.note_eager_sent(peer_of(stream), payload.size());
  }
  frame_sender_.finish_with(header, payload);
}

std::vector<GroupRank> OutboundStreams::unfinished_peers() const {
  std::vector<GroupRank> peers;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].sent < streams_[i].slices) peers.push_back(streams_[i].peer);
  }
  return peers;
}

}  // namespace qccl::engine
