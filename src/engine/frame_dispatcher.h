// Takes the frames that arrive to the operations, messages and groups that they are for.
//
// Every frame is held against the operation of its sequence number: past, present, or stored for later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/failure/mismatch_detector.h"
#include "engine/failure/peer_failures.h"

namespace qccl::engine {

struct DispatcherParts {
  FailureHandler& failures;
  PeerFailures& peer_failures;
  MismatchDetector& mismatches;
};

// One thread.
class FrameDispatcher : private PayloadPlacement {
 public:
  FrameDispatcher(EngineParts& parts, DispatcherParts others);
  ~FrameDispatcher() override;

  // True if any arrived.
  bool receive();
  // Takes over the frame: handles, keeps or discards it.
  void on_group_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  // Handles the frames that came before this rank had posted that operation.
  void replay_stored(Group& group, std::uint64_t sequence);

 private:
  void on_frame(const ReceivedFrame& frame);
  bool is_intact(const wire::FrameHeader& header, const ReceivedFrame& frame);
  std::byte* place(WorldRank peer, ConstBytes header) override;
  void on_member_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void on_operation_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void on_message_frame(Group& group, const wire::FrameHeader& header, const ReceivedFrame& frame);
  void deliver(Operation& operation, GroupRank member, const wire::FrameHeader& header, const ReceivedFrame& frame);
  // For later, if not too many are kept already.
  void keep(std::vector<StoredFrame>& where, std::size_t kept, const wire::FrameHeader& header,
            const ReceivedFrame& frame);
  void keep_orphan(const wire::FrameHeader& header, const ReceivedFrame& frame);

  EngineParts& parts_;
  FailureHandler& failures_;
  PeerFailures& peer_failures_;
  MismatchDetector& mismatches_;
  std::vector<StoredFrame> due_;           // by replay_stored()
  std::optional<ReceivedFrame> recorded_;  // that there was no memory to keep
};

}  // namespace qccl::engine
