// What one member of a group knows of all members: who is lost, who has called shrink(), and what they have said of
// each other. From it follow the leader, whom it waits for, and which members may go on.
//
// Pure state, one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/rank.h"
#include "engine/shrink/paxos.h"
#include "qccl/failures.h"
#include "wire/member_list.h"

namespace qccl::engine {

// What all callers must give alike.
struct ShrinkTerms {
  MemberSet without;  // to be left out
  bool any_quorum = false;

  friend bool operator==(const ShrinkTerms&, const ShrinkTerms&) = default;
};

using Losses = std::vector<std::optional<LossGrade>>;  // by group rank

class ShrinkRoll {
 public:
  // `ranks`: the members' ranks in the world, for messages.
  ShrinkRoll(std::vector<int> ranks, GroupRank self);

  // This rank calls.
  void enter(ShrinkTerms terms, Losses losses);
  // Its call has ended.
  void leave(wire::Presence presence) { reports_[self_.index()].presence = presence; }
  // False if that says nothing new: the member was lost before, as surely.
  bool lose(GroupRank member, LossGrade grade);
  // A member's suspects message.
  void note(GroupRank from, const wire::MemberList& message);
  // This rank's.
  wire::MemberList suspects() const;

  std::size_t size() const { return ranks_.size(); }
  const Losses& losses() const { return own().losses; }
  // How the member was lost, as the surest of all that hold it for lost has seen it.
  std::optional<LossGrade> reported(GroupRank member) const;
  // The lowest rank that may go on.
  GroupRank leader() const;
  // The members that the leader waits for: those that may go on and have not called.
  MemberSet missing() const;
  // Members that hold each other for alive and have called, this rank first among them.
  MemberSet quorum() const;
  // Others have called too, but hold some of the quorum for lost or are held for lost by them.
  bool is_divided(const MemberSet& quorum) const;
  // Those that have to accept the quorum: itself, and the members that are left out on purpose and not lost.
  MemberSet acceptors(const MemberSet& quorum) const;
  // The quorum and the acceptors may decide without the others.
  bool may_decide(const MemberSet& quorum) const;

  // The calls, if they differ between members that may go on together.
  std::optional<std::string> differing_calls() const;
  std::string too_few(const MemberSet& quorum) const;
  // "ranks 0, 2", as the world numbers them.
  std::string names(const MemberSet& members) const;

 private:
  // What a member has said last.
  struct Report {
    wire::Presence presence = wire::Presence::away;
    ShrinkTerms terms;
    Losses losses;
  };

  const Report& of(GroupRank member) const { return reports_[member.index()]; }
  const Report& own() const { return of(self_); }
  bool leaves_out(GroupRank from, GroupRank member) const { return of(from).terms.without[member.index()] != 0; }
  bool may_go_on(GroupRank member) const;
  bool has_called(GroupRank member) const;
  bool is_certainly_lost(GroupRank member, const MemberSet& quorum) const;
  template <class Condition>
  MemberSet select(Condition condition) const;
  std::string describe(GroupRank caller) const;

  const std::vector<int> ranks_;
  const GroupRank self_;
  std::vector<Report> reports_;  // by group rank
};

// "ranks 0, 2", or "rank 2".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace qccl::engine
