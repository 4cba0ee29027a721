#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/act/failure_handler.h"
#include "engine/state/control_queue.h"
#include "engine/state/group_table.h"
#include "engine/state/operation_table.h"
#include "engine/state/peer_monitor.h"
#include "engine/state/round_clock.h"

namespace qccl::engine {

// How long the exchange of calls may take: this, or three round trips where ranks are far apart.
inline constexpr Nanoseconds kMismatchPatience = std::chrono::seconds(1);

// When two ranks make different calls of one number, each tells the others its call. After that time at the latest all
// fail with an error that names the calls and the ranks that made them, the minority last.
class MismatchDetector {
 public:
  MismatchDetector(const RoundClock& clock, GroupTable& groups, OperationTable& operations, const PeerMonitor& peers,
                   ControlQueue& control, FailureHandler& failures)
      : clock_(clock),
        groups_(groups),
        operations_(operations),
        peers_(peers),
        control_(control),
        failures_(failures) {}

  // A peer's call of that number differs from this rank's, which is told to the members.
  void begin(Group& group, std::uint64_t sequence) { find_or_begin(group, sequence); }
  // A peer has told its call.
  void on_fingerprint(Group& group, const wire::FrameHeader& header, WorldRank peer, ConstBytes payload);
  // Fails the groups whose members have all told their calls, or whose time for that is over.
  void check();
  TimePoint next_deadline() const;
  void forget(std::uint64_t group);

 private:
  // A member's call of the sequence number in question.
  struct CallReport {
    std::uint64_t fingerprint = 0;
    std::string description;
  };
  struct Mismatch {
    std::uint64_t group = 0;
    std::uint64_t sequence = 0;
    TimePoint deadline{};
    std::vector<std::optional<CallReport>> notes;  // by group rank
  };

  // Null if this rank's call is not known any more, or the group has failed.
  Mismatch* find_or_begin(Group& group, std::uint64_t sequence);
  void fail(Group& group, const Mismatch& mismatch);
  // This rank's call of a number, in flight or remembered.
  std::optional<PastCall> own_call(const Group& group, std::uint64_t sequence) const;

  const RoundClock& clock_;
  GroupTable& groups_;
  OperationTable& operations_;
  const PeerMonitor& peers_;
  ControlQueue& control_;
  FailureHandler& failures_;
  std::vector<Mismatch> mismatches_;
};

}  // namespace qccl::engine
