#include "engine/failure/control_queue.h"

#include <utility>

namespace qccl::engine {

using wire::FrameKind;

void ControlQueue::queue(int peer, wire::FrameHeader header, std::span<const char> text) {
  const auto bytes = std::as_bytes(text);
  frames_.push_back({peer, header, {bytes.begin(), bytes.end()}});
}

void ControlQueue::say_goodbye() {
  for (std::size_t peer = 0; peer < owes_goodbye_.size(); ++peer) {
    const int rank = static_cast<int>(peer);
    if (rank == rank_ || peers_[rank].lost || std::exchange(owes_goodbye_[peer], 1) != 0) continue;
    ++goodbyes_due_;
  }
}

bool ControlQueue::send() {
  const std::size_t before = frames_.size();
  std::erase_if(frames_, [this](const ControlFrame& frame) { return send_or_drop(frame); });
  const bool has_sent = frames_.size() != before;
  return (frames_.empty() && send_goodbyes()) || has_sent;
}

// True if the frame is done with.
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
  for (std::size_t peer = 0; goodbyes_due_ > 0 && peer < owes_goodbye_.size(); ++peer) {
    const int rank = static_cast<int>(peer);
    if (owes_goodbye_[peer] == 0) continue;
    if (!peers_[rank].lost && !frame_sender_.send_control(rank, {.kind = FrameKind::goodbye})) continue;
    owes_goodbye_[peer] = 0;
    --goodbyes_due_;
  }
  return goodbyes_due_ != before;
}

}  // namespace qccl::engine
