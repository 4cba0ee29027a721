#pragma once

#include <string>
#include <vector>

#include "engine/act/failure_handler.h"
#include "engine/state/control_queue.h"
#include "engine/state/engine_options.h"
#include "engine/state/group_table.h"
#include "engine/state/operation_table.h"
#include "engine/state/peer_monitor.h"
#include "engine/state/round_clock.h"
#include "transport/transport.h"

namespace qccl::engine {

// What peers do to a group's operations: they are lost, leave, fall silent, miss a deadline or fail themselves.
class PeerFailures {
 public:
  PeerFailures(const EngineOptions& options, const RoundClock& clock, Transport& transport, GroupTable& groups,
               OperationTable& operations, PeerMonitor& peers, ControlQueue& control, FailureHandler& failures)
      : options_(options),
        clock_(clock),
        transport_(transport),
        groups_(groups),
        operations_(operations),
        peers_(peers),
        control_(control),
        failures_(failures) {}

  // True if connections have ended.
  bool look_for_losses();
  // Gives up a peer whose connection may still work: tells it why, then disconnects it.
  void give_up(WorldRank peer, ErrorKind kind, const std::string& what);
  // The peer has given this rank up.
  void on_given_up(WorldRank peer, ConstBytes payload);
  void on_goodbye(WorldRank peer);
  // A member tells why the group has failed.
  void on_poison(Group& group, WorldRank peer, ConstBytes payload);
  // Fails the operation if it needs a peer that is lost or has left.
  void look_for_absent(Operation& operation);
  void check_deadlines();
  void check_silent_peers();

 private:
  void miss_deadline(const Operation& operation);
  bool still_moves(const Operation& operation, const std::vector<GroupRank>& awaited) const;
  struct Loss {
    WorldRank peer;
    LossGrade grade = LossGrade::silent;
    ErrorKind kind = ErrorKind::peer_lost;
    std::string what{};
  };
  void lose(const Loss& loss, bool tell_others = true);

  const EngineOptions& options_;
  const RoundClock& clock_;
  Transport& transport_;
  GroupTable& groups_;
  OperationTable& operations_;
  PeerMonitor& peers_;
  ControlQueue& control_;
  FailureHandler& failures_;
};

}  // namespace qccl::engine
