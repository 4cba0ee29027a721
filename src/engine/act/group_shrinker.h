// Shrinks groups to the members that live: gives each group's Agreement its events (frames, losses, silence, time),
// sends its messages, and ends the old group once its members have agreed.
//
// A silent member is disconnected only when the others go on without it, so that it learns who they are.
//
// One thread. A call for which there is no memory fails at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/act/failure_handler.h"
#include "engine/act/peer_failures.h"
#include "engine/shrink/agreement.h"
#include "engine/state/control_queue.h"
#include "engine/state/ended_works.h"
#include "engine/state/engine_options.h"
#include "engine/state/group_table.h"
#include "engine/state/peer_monitor.h"
#include "engine/state/round_clock.h"

namespace qccl::engine {

// Silence is measured by heartbeats: a shorter patience is rounded up to this many of them.
inline constexpr int kLeastPatienceBeats = 4;

// A call of shrink().
struct ShrinkCall {
  ShrinkTerms terms;
  Nanoseconds patience{};
  Nanoseconds timeout{};
  std::shared_ptr<internal::WorkState> work{};     // ends with the call
  std::shared_ptr<std::vector<GroupRank>> then{};  // receives the members that go on, in order
};

// A group that is shrunk, or may be.
struct Shrinking {
  std::uint64_t group;
  Agreement agreement;
  std::optional<ShrinkCall> call{};
  std::optional<ShrinkVerdict> verdict{};  // not delivered yet
  TimePoint deadline{};
  bool has_ended_group = false;
  bool has_successor = false;
  MemberSet left_out{};  // to be disconnected
  TimePoint parting{};   // at the latest

  // Nothing is left to do without an event.
  bool is_over();
  void begin_parting(TimePoint now);
  // What others have said of a member whose connection to this rank works.
  std::optional<LostRank> lost_elsewhere(GroupRank member, WorldRank peer) const;
};

class GroupShrinker {
 public:
  GroupShrinker(const EngineOptions& options, RoundClock& clock, GroupTable& groups, const PeerMonitor& peers,
                ControlQueue& control, EndedWorks& ended, FailureHandler& failures, PeerFailures& peer_failures)
      : options_(options),
        clock_(clock),
        groups_(groups),
        peers_(peers),
        control_(control),
        ended_(ended),
        failures_(failures),
        peer_failures_(peer_failures),
        last_look_(clock.now()) {}

  void begin(std::uint64_t group, ShrinkCall call);
  // A member's message.
  void on_frame(Group& group, WorldRank peer, ConstBytes payload);
  // The same of a group that is closed here: the sender learns that this rank has left it.
  void answer_for_closed(std::uint64_t group, WorldRank peer, ConstBytes payload);
  // The group closes, which the members learn.
  void close(const Group& group);

  // Does what is due.
  void advance();
  TimePoint next_timer() const;

  // The group's members that are lost.
  std::vector<LostRank> lost(std::uint64_t group) const;

 private:
  void tell_closed(std::uint64_t group, WorldRank peer);
  // Null if nobody has called shrink() of the group.
  Shrinking* find(std::uint64_t group) const;
  Shrinking& find_or_make(const Group& group);
  Losses known_losses(const Group& group) const;
  std::optional<ErrorInfo> misuse(const Shrinking& shrinking, const Group& group) const;
  void advance(Shrinking& shrinking, Group& group);
  void look_for_losses(Shrinking& shrinking, const Group& group);
  void send(const Group& group, Agreement& agreement);
  // All members that go on have been sent the commit.
  bool has_passed_on(const Shrinking& shrinking, const Group& group) const;
  void end_group(Shrinking& shrinking, Group& group);
  void part(Shrinking& shrinking, const Group& group);
  void deliver(Shrinking& shrinking, const Group& group);
  // The call of this rank ends with an error. Takes no memory.
  void abandon(Shrinking& shrinking);
  void refuse(const ShrinkCall& call, ErrorInfo failure);
  TimePoint next_silence(const Shrinking& shrinking, const Group& group) const;
  // When this rank last heard of the peer, or itself went on after a stop.
  TimePoint last_heard(WorldRank peer) const { return std::max(peers_[peer].last_heard, awake_since_); }

  const EngineOptions& options_;
  RoundClock& clock_;
  GroupTable& groups_;
  const PeerMonitor& peers_;
  ControlQueue& control_;
  EndedWorks& ended_;
  FailureHandler& failures_;
  PeerFailures& peer_failures_;
  std::vector<std::unique_ptr<Shrinking>> shrinkings_;  // of open groups
  TimePoint last_look_;
  TimePoint awake_since_{};
};

}  // namespace qccl::engine
