// How the members of a group agree on those that go on, on one member: Communicator::shrink() without clock, network or
// threads.
//
// A member that calls tells all others whom it holds for lost, and what its call asks for. The leader is the lowest
// rank that a member does not hold for lost. Once every member that the leader holds for alive has called, the leader
// proposes those that hold each other for alive (paxos.h). All of them have to accept it, and those that the callers
// leave out on purpose. If the leader is lost, the next rank is the leader and starts a higher ballot. A member passes
// a commit on to all others before it believes it, so that a proposer that dies while it commits splits no group.
//
// Members that are gone or have left need not accept. To do without others, which may be running, the acceptors must be
// more than half of the members, or the half with the lowest rank. Of two disjoint sets of acceptors one therefore
// consists of members that have ended.
//
// A group has one agreement in its life. A call that fails may be repeated: what was accepted stays.
//
// One thread. The owner passes time and events in, and sends what is in outbox(), in order. After std::bad_alloc a call
// under way may have lost a message, or be abandoned. So a call that takes long says again what it said.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "base/result.h"
#include "engine/shrink/paxos.h"
#include "engine/shrink/shrink_roll.h"

namespace qccl::engine {

// Messages to be sent. What a member sends to itself is kept apart.
class Outbox {
 public:
  struct Outgoing {
    GroupRank to;
    wire::MemberList message;
  };

  explicit Outbox(GroupRank self) : self_(self) {}

  void send(GroupRank to, wire::MemberList message);
  void send_to(const MemberSet& members, const wire::MemberList& message);
  // To all but this rank and those that have ended: a silent member may wake up and read it.
  void send_to_others(const Losses& losses, const wire::MemberList& message);

  bool is_empty() const { return outgoing_.empty(); }
  // The first to be sent; null: none.
  const Outgoing* front() const { return outgoing_.empty() ? nullptr : &outgoing_.front(); }
  void pop() { outgoing_.pop_front(); }
  bool has_own() const { return !own_.empty(); }
  std::vector<wire::MemberList> take_own() { return std::exchange(own_, {}); }

 private:
  const GroupRank self_;
  std::deque<Outgoing> outgoing_;
  std::vector<wire::MemberList> own_;
};

// The members that go on, this rank among them; or why its call has failed.
using ShrinkVerdict = Result<MemberSet>;

class Agreement {
 public:
  // `ranks`: the members' ranks in the world, for messages. `retry`: the least wait before a ballot that was rejected
  // is followed by a higher one; some round trips.
  Agreement(std::vector<int> ranks, GroupRank self, Nanoseconds retry);

  // This rank calls. `losses`: the members that it holds for lost.
  void enter(ShrinkTerms terms, Losses losses, TimePoint deadline, TimePoint now);
  // The end of the call, once.
  std::optional<ShrinkVerdict> take_verdict() { return std::exchange(verdict_, std::nullopt); }

  // ---- events
  void lose(GroupRank member, LossGrade grade, TimePoint now);
  // A message that decode_member_list() has accepted.
  void receive(GroupRank from, const wire::MemberList& message, TimePoint now);
  // Does what is due at `now`.
  void advance(TimePoint now);
  // When advance() has something to do without an event.
  TimePoint next_timer() const;

  // This rank's call ends without a verdict.
  void abandon();

  Outbox& outbox() { return outbox_; }
  // The members that go on, once that is known.
  const std::optional<MemberSet>& chosen() const { return chosen_; }
  const ShrinkRoll& roll() const { return roll_; }

 private:
  struct Call {
    TimePoint deadline;
    TimePoint again;                        // when it tells the others again, and begins its ballot anew
    std::optional<TimePoint> wait_until{};  // the leader does nothing before
    int rejections = 0;
    MemberSet doubted{};  // the quorum that it waits with; empty: after a rejection
  };

  void repeat(TimePoint now);
  void lead(TimePoint now);
  // A quorum cannot decide. True if this rank waits, because others hold a member for lost and this rank does not: if
  // it has ended, its end comes here as well.
  bool doubt(const MemberSet& quorum, TimePoint now);
  void end_call(ShrinkVerdict verdict, wire::Presence presence);
  void fail(ErrorKind kind, std::string what, wire::Presence presence = wire::Presence::away);

  void handle(GroupRank from, const wire::MemberList& message, TimePoint now);
  void on_suspects(GroupRank from, const wire::MemberList& message);
  // Acceptor: a prepare or a proposal.
  void on_request(GroupRank from, const wire::MemberList& message);
  // Proposer: the answers to those.
  void on_answer(GroupRank from, const wire::MemberList& message, TimePoint now);
  void choose(const MemberSet& value);

  const GroupRank self_;
  const Nanoseconds retry_;
  ShrinkRoll roll_;
  Acceptor acceptor_;
  Proposer proposer_;
  std::optional<MemberSet> chosen_;
  std::optional<Call> call_;  // under way
  std::optional<ShrinkVerdict> verdict_;
  Outbox outbox_;
};

}  // namespace qccl::engine
