// What peers do to a group's operations: they are lost, leave, fall silent, miss a deadline or fail themselves.
#pragma once

#include <string>

#include "engine/failure/failure_handler.h"

namespace qccl::engine {

// One thread.
class PeerFailures {
 public:
  PeerFailures(EngineParts& parts, FailureHandler& failures) : parts_(parts), failures_(failures) {}

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
  void lose(WorldRank peer, ErrorKind kind, const std::string& what, bool tell_others = true);

  EngineParts& parts_;
  FailureHandler& failures_;
};

}  // namespace qccl::engine
