#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/act/failure_handler.h"
#include "engine/act/group_shrinker.h"
#include "engine/act/mismatch_detector.h"
#include "engine/act/peer_failures.h"
#include "engine/act/status_exchange.h"
#include "engine/frames/frame.h"
#include "engine/frames/frame_sender.h"
#include "engine/state/group_table.h"
#include "engine/state/operation_table.h"
#include "engine/state/peer_monitor.h"
#include "engine/state/round_clock.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace qccl::engine {

// Delivers arriving frames to the operations, messages and groups they are for. A frame is compared with the operation
// of its sequence number, or stored until that is posted.
class FrameDispatcher : private PayloadPlacement {
 public:
  FrameDispatcher(const RoundClock& clock, GroupTable& groups, OperationTable& operations, PeerMonitor& peers,
                  FrameSender& frame_sender, FailureHandler& failures, PeerFailures& peer_failures,
                  MismatchDetector& mismatches, GroupShrinker& shrinker, StatusExchange& status);
  ~FrameDispatcher() override;

  // True if any arrived.
  bool receive();
  // Handles, keeps or drops it.
  void on_group_frame(Group& group, Frame&& frame);
  // Handles the frames that came before this rank posted that operation.
  void replay_stored(Group& group, std::uint64_t sequence);

 private:
  // The frame, if its peer is not lost and it is sound.
  Frame check(const ReceivedFrame& received);
  void on_frame(Frame&& frame);
  std::byte* find_destination(WorldRank peer, ConstBytes header) override;
  void on_member_frame(Group& group, Frame&& frame);
  void on_operation_frame(Group& group, Frame&& frame);
  void on_message_frame(Group& group, Frame&& frame);
  void deliver(Operation& operation, GroupRank member, Frame&& frame);
  // Moves the frame to `where`, or gives its sender up if `kept` frames are too many already.
  void keep(std::vector<Frame>& where, std::size_t kept, Frame&& frame);
  void keep_orphan(Frame&& frame);

  Transport& transport_;
  const RoundClock& clock_;
  GroupTable& groups_;
  OperationTable& operations_;
  PeerMonitor& peers_;
  FrameSender& frame_sender_;
  FailureHandler& failures_;
  PeerFailures& peer_failures_;
  MismatchDetector& mismatches_;
  GroupShrinker& shrinker_;
  StatusExchange& status_;
  std::vector<Frame> due_;  // of replay_stored()
  Frame retried_;           // comes next, because there was no memory to keep it
};

}  // namespace qccl::engine
