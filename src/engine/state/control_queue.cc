#include "engine/state/control_queue.h"

#include <algorithm>
#include <utility>

namespace qccl::engine {

using wire::FrameKind;

void ControlQueue::queue(WorldRank peer, wire::FrameHeader header, std::span<const char> text) {
  const auto bytes = std::as_bytes(text);
  frames_.push_back({peer, header, {bytes.begin(), bytes.end()}});
}

void ControlQueue::queue_for_all(std::span<const int> ranks, const wire::FrameHeader& header,
                                 std::span<const char> text) {
  for (const int number : ranks) {
    const WorldRank rank(number);
    if (rank != rank_ && !peers_[rank].lost) queue(rank, header, text);
  }
}

void ControlQueue::say_goodbye() {
  for (WorldRank peer(0); peer.index() < owes_goodbye_.size(); ++peer) {
    if (peer == rank_ || peers_[peer].lost || std::exchange(owes_goodbye_[peer.index()], 1) != 0) continue;
    ++goodbyes_due_;
  }
}

bool ControlQueue::holds(WorldRank peer, wire::FrameKind kind) const {
  return std::ranges::any_of(
      frames_, [&](const ControlFrame& frame) { return frame.peer == peer && frame.header.kind == kind; });
}

bool ControlQueue::send() {
  const std::size_t before = frames_.size();
  std::ranges::fill(has_no_room_, 0);
  std::erase_if(frames_, [this](const ControlFrame& frame) { return send_or_drop(frame); });
  const bool has_sent = frames_.size() != before;
  return send_goodbyes() || has_sent;
}

// True if the frame can be forgotten.
bool ControlQueue::send_or_drop(const ControlFrame& frame) {
  const PeerMonitor::Peer& peer = peers_[frame.peer];
  const bool is_last = frame.header.kind == FrameKind::given_up;
  const bool is_for_the_lost = is_last || frame.header.kind == FrameKind::member_list;
  if (peer.gone || (peer.lost && !is_for_the_lost)) return true;
  char& has_no_room = has_no_room_[frame.peer.index()];
  if (has_no_room != 0) return false;
  if (!frame_sender_.send_control(frame.peer, frame.header, frame.payload)) {
    has_no_room = 1;
    return false;
  }
  if (is_last) frame_sender_.transport().disconnect(frame.peer);
  return true;
}

bool ControlQueue::send_goodbyes() {
  const int before = goodbyes_due_;
  for (WorldRank peer(0); peer.index() < owes_goodbye_.size(); ++peer) {
    if (owes_goodbye_[peer.index()] == 0) continue;
    // It comes after all frames for that peer; one that takes none holds up no other.
    const bool must_wait = !peers_[peer].lost && has_no_room_[peer.index()] != 0;
    if (must_wait) continue;
    if (!peers_[peer].lost && !frame_sender_.send_control(peer, {.kind = FrameKind::goodbye})) continue;
    owes_goodbye_[peer.index()] = 0;
    --goodbyes_due_;
  }
  return goodbyes_due_ != before;
}

}  // namespace qccl::engine
