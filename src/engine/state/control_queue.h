#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/rank.h"
#include "engine/frames/frame_sender.h"
#include "engine/state/peer_monitor.h"
#include "wire/frame.h"

namespace qccl::engine {

// Control frames with text (poison, calls, reasons) and goodbyes, which wait for room in the transport. Those for one
// peer keep their order. One thread. The others outlive it.
class ControlQueue {
 public:
  ControlQueue(const PeerMonitor& peers, FrameSender& frame_sender, WorldRank rank, int world)
      : peers_(peers),
        frame_sender_(frame_sender),
        rank_(rank),
        owes_goodbye_(static_cast<std::size_t>(world)),
        has_no_room_(static_cast<std::size_t>(world)) {}

  void queue(WorldRank peer, wire::FrameHeader header, std::span<const char> text);
  // The same to each of these ranks (in the world) that is neither this one nor lost.
  void queue_for_all(std::span<const int> ranks, const wire::FrameHeader& header, std::span<const char> text);
  // Queues a goodbye to every peer.
  void say_goodbye();
  // Sends what there is room for; true if anything was sent. A peer is disconnected after its given_up frame.
  bool send();
  bool empty() const { return frames_.empty() && goodbyes_due_ == 0; }
  // Frames that wait, goodbyes apart.
  std::size_t size() const { return frames_.size(); }
  // A frame of that kind waits to be sent to the peer.
  bool holds(WorldRank peer, wire::FrameKind kind) const;

 private:
  struct ControlFrame {
    WorldRank peer;
    wire::FrameHeader header;
    std::vector<std::byte> payload;
  };

  bool send_or_drop(const ControlFrame& frame);
  bool send_goodbyes();

  const PeerMonitor& peers_;
  FrameSender& frame_sender_;
  const WorldRank rank_;
  std::vector<ControlFrame> frames_;
  std::vector<char> owes_goodbye_;  // by peer
  std::vector<char> has_no_room_;   // by peer, during send()
  int goodbyes_due_ = 0;
};

}  // namespace qccl::engine
