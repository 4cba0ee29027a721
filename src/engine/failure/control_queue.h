// Control frames with text (poison, calls, reasons) and goodbyes, which wait for room in the transport.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/failure/peer_monitor.h"
#include "engine/frame_sender.h"
#include "wire/frame.h"

namespace qccl::engine {

// One thread. The others outlive it.
class ControlQueue {
 public:
  ControlQueue(const PeerMonitor& peers, FrameSender& frame_sender, WorldRank rank, int world)
      : peers_(peers), frame_sender_(frame_sender), rank_(rank), owes_goodbye_(static_cast<std::size_t>(world)) {}

  void queue(WorldRank peer, wire::FrameHeader header, std::span<const char> text);
  // Queues a goodbye to every peer.
  void say_goodbye();
  // Sends what there is room for; true if anything was sent. A peer is disconnected after its given_up frame.
  bool send();
  bool empty() const { return frames_.empty() && goodbyes_due_ == 0; }

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
  int goodbyes_due_ = 0;
};

}  // namespace qccl::engine
