#include "engine/failure/control_queue.h"

#include <utility>

namespace qccl::engine {

using wire::FrameKind;

void ControlQueue::queue(WorldRank peer, wire::FrameHeader header, std::span<const char> text) {
  const auto bytes = std::as_bytes(text);
  frames_.push_back({peer, header, {bytes.begin(), bytes.end()}});
}

void ControlQueue::say_goodbye() {
  for (WorldRank peer(0); peer.index() < owes_goodbye_.size(); ++peer) {
    if (peer == rank_ || peers_[peer].lost || std::exchange(owes_goodbye_[peer.index()], 1) != 0) continue;
    ++goodbyes_due_;
  }
}

bool ControlQueue::send() {
  const std::size_t before = frames_.size();
  std::erase_if(frames_, [this](const ControlFrame& frame) { return send_or_drop(frame); });
  const bool has_sent = frames_.size() != before;
  return (frames_.empty() && send_goodbyes()) || has_sent;
}

// True if the frame can be forgotten.
bool ControlQueue::send_or_drop(const ControlFrame& frame) {
  const PeerMonitor::Peer& peer = peers_[frame.peer];
  const bool is_last = frame.header.kind == FrameKind::given_up;
  if (peer.gone || (peer.lost && !is_last)) return true;
  if (!frame_sender_.send_control(frame.peer, frame.header, frame.payload)) return false;
  if (is_last) frame_sender_.transport().disconnect(frame.peer);
  return true;
}

bool ControlQueue::send_goodbyes() {
  const int before = goodbyes_due_;
  for (WorldRank peer(0); goodbyes_due_ > 0 && peer.index() < owes_goodbye_.size(); ++peer) {
    if (owes_goodbye_[peer.index()] == 0) continue;
    if (!peers_[peer].lost && !frame_sender_.send_control(peer, {.kind = FrameKind::goodbye})) continue;
    owes_goodbye_[peer.index()] = 0;
    --goodbyes_due_;
  }
  return goodbyes_due_ != before;
}

}  // namespace qccl::engine
