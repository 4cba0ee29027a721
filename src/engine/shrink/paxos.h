// Single-value Paxos ("Paxos Made Simple", Lamport 2001): the value is the set of members that go on, and is chosen at
// most once for a group.
//
// A proposer asks a quorum to promise that it accepts nothing of a lower ballot. Each promise says what its sender has
// accepted so far. The proposer then proposes the value of the highest ballot among those, or its own if there is none.
// A value that the whole quorum accepts is chosen.
//
// Two quorums must share a member that lives: then no later ballot misses a value that was chosen. Agreement chooses
// them by that rule.
//
// Pure state, one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/rank.h"
#include "wire/member_list.h"

namespace qccl::engine {

using wire::Ballot;
// By group rank: 1 for a member of the set, else 0.
using MemberSet = std::vector<std::uint8_t>;

class Acceptor {
 public:
  struct Accepted {
    Ballot ballot;  // round 0: nothing was accepted
    MemberSet value;
  };

  // Promises to accept nothing of a lower ballot; false if a higher one has that promise.
  bool promise(const Ballot& ballot) {
    if (ballot < promised_) return false;
    promised_ = ballot;
    QCCL_CHECK(accepted_.ballot <= promised_);
    return true;
  }
  // False if a higher ballot has a promise.
  bool accept(const Ballot& ballot, const MemberSet& value) {
    if (!promise(ballot)) return false;
    QCCL_CHECK(ballot == promised_ && accepted_.ballot <= ballot);
    accepted_ = {ballot, value};
    return true;
  }
  const Ballot& promised() const { return promised_; }
  const Accepted& accepted() const { return accepted_; }

 private:
  Ballot promised_;
  Accepted accepted_;
};

class Proposer {
 public:
  explicit Proposer(GroupRank self) : self_(self) {}

  // Begins a ballot above all that were seen. `value` is proposed if no other may have been chosen.
  const Ballot& begin(MemberSet quorum, MemberSet value) {
    const Ballot earlier = std::exchange(ballot_, {highest_round_ + 1, static_cast<std::uint32_t>(self_.value())});
    QCCL_CHECK(earlier < ballot_ && quorum.size() == value.size());
    see(ballot_);
    promises_ = accepts_ = MemberSet(quorum.size(), 0);
    value_ = {Ballot{}, std::move(value)};
    quorum_ = std::move(quorum);
    is_active_ = true;
    return ballot_;
  }
  void stop() { is_active_ = false; }
  bool is_active() const { return is_active_; }

  // Some member knows of this ballot.
  void see(const Ballot& ballot) { highest_round_ = std::max(highest_round_, ballot.round); }
  // True once the whole quorum has promised: value() is to be proposed to it.
  bool on_promise(GroupRank from, const Ballot& ballot, const Acceptor::Accepted& accepted) {
    if (!is_mine(ballot) || promises_ == quorum_) return false;
    if (accepted.ballot > value_.ballot) value_ = accepted;
    return note(promises_, from);
  }
  // True once the whole quorum has accepted: value() is chosen.
  bool on_accept(GroupRank from, const Ballot& ballot) { return is_mine(ballot) && note(accepts_, from); }
  bool is_mine(const Ballot& ballot) const { return is_active_ && ballot == ballot_; }

  // The members of the quorum that have yet to answer.
  MemberSet awaited() const {
    MemberSet members = quorum_;
    const MemberSet& answers = promises_ == quorum_ ? accepts_ : promises_;
    for (std::size_t member = 0; member < members.size(); ++member) members[member] &= answers[member] == 0 ? 1 : 0;
    return members;
  }

  const Ballot& ballot() const { return ballot_; }
  const MemberSet& quorum() const { return quorum_; }
  const MemberSet& value() const { return value_.value; }

 private:
  bool note(MemberSet& answers, GroupRank from) const {
    answers[from.index()] = quorum_[from.index()];
    return answers == quorum_;
  }

  const GroupRank self_;
  std::uint32_t highest_round_ = 0;
  bool is_active_ = false;
  Ballot ballot_;
  MemberSet quorum_;
  MemberSet promises_;
  MemberSet accepts_;
  Acceptor::Accepted value_;
};

}  // namespace qccl::engine
