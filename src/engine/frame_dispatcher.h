// Delivers arriving frames to the operations, messages and groups they are for. A frame is compared with the operation
// of its sequence number, or stored until that is posted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/failure/mismatch_detector.h"
#include "engine/failure/peer_failures.h"

namespace qccl::engine {

// One thread.
class FrameDispatcher : private PayloadPlacement {
 public:
  FrameDispatcher(EngineParts& parts, FailureHandler& failures, PeerFailures& peer_failures,
                  MismatchDetector& mismatches);
  ~FrameDispatcher() override;

  // True if any arrived.
  bool receive();
  // Takes over the frame: handles, keeps or discards it.
  void on_group_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  // Handles the frames that came before this rank posted that operation.
  void replay_stored(Group& group, std::uint64_t sequence);

 private:
  void on_frame(const ReceivedFrame& frame);
  bool is_intact(const wire::FrameHeader& header, const ReceivedFrame& frame);
  std::byte* find_destination(WorldRank peer, ConstBytes header) override;
  void on_member_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void on_operation_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void on_message_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void deliver(Operation& operation, GroupRank member, const wire::FrameHeader& header, const ReceivedFrame& frame);
  // Stores the frame in `where`, or gives its sender up if `kept` frames are too many already.
  void keep(std::vector<StoredFrame>& where, std::size_t kept, const wire::FrameHeader& header,
            const ReceivedFrame& frame);
  void keep_orphan(const wire::FrameHeader& header, const ReceivedFrame& frame);

  EngineParts& parts_;
  FailureHandler& failures_;
  PeerFailures& peer_failures_;
  MismatchDetector& mismatches_;
  std::vector<StoredFrame> due_;          // of replay_stored()
  std::optional<ReceivedFrame> retried_;  // comes next, because there was no memory to keep it
};

}  // namespace qccl::engine
