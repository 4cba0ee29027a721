#include "engine/shrink/agreement.h"

#include <fmt/format.h>

#include <algorithm>

namespace qccl::engine {

using wire::MemberList;
using wire::MemberListKind;
using wire::Presence;

namespace {

constexpr int kRoundsUntilAgain = 100;  // waits before a call repeats itself: an answer does not take as long

std::string deadline_text(const ShrinkRoll& roll, const Proposer& proposer) {
  const MemberSet missing = roll.missing();
  if (std::ranges::find(missing, 1) != missing.end()) {
    return fmt::format(
        "the deadline passed: {} live and have not called shrink(). All that go on must call it; leave out the others "
        "by ShrinkOptions::without",
        roll.names(missing));
  }
  if (proposer.is_active()) {
    return fmt::format(
        "the deadline passed: {} did not answer. It may be stopped or cut off: give shrink() a timeout that is longer "
        "than its patience, and call it again",
        roll.names(proposer.awaited()));
  }
  return "the deadline passed before the members had agreed: give shrink() a longer timeout, and call it again";
}

}  // namespace

Agreement::Agreement(std::vector<int> ranks, GroupRank self, Nanoseconds retry)
    : self_(self), retry_(retry), roll_(std::move(ranks), self), proposer_(self), outbox_(self) {}

void Agreement::enter(ShrinkTerms terms, Losses losses, TimePoint deadline, TimePoint now) {
  call_ = Call{deadline, now + kRoundsUntilAgain * retry_};
  roll_.enter(std::move(terms), std::move(losses));
  verdict_.reset();
  proposer_.stop();
  outbox_.send_to_others(roll_.losses(), roll_.suspects());
  advance(now);
}

void Agreement::lose(GroupRank member, LossGrade grade, TimePoint now) {
  if (!roll_.lose(member, grade)) return;
  if (call_ && !chosen_) outbox_.send_to_others(roll_.losses(), roll_.suspects());
  advance(now);
}

void Agreement::receive(GroupRank from, const MemberList& message, TimePoint now) {
  handle(from, message, now);
  advance(now);
}

TimePoint Agreement::next_timer() const {
  if (!call_) return kForever;
  return std::min({call_->deadline, call_->again, call_->wait_until.value_or(kForever)});
}

// A member that was refused memory may have lost a message, or its answer.
void Agreement::repeat(TimePoint now) {
  call_->again = now + kRoundsUntilAgain * retry_;
  proposer_.stop();
  outbox_.send_to_others(roll_.losses(), roll_.suspects());
}

// What a member sends to itself is handled at once.
void Agreement::advance(TimePoint now) {
  if (call_ && !chosen_ && now >= call_->again && now < call_->deadline) repeat(now);
  if (call_ && call_->wait_until && now >= *call_->wait_until) call_->wait_until.reset();
  while (true) {
    for (const MemberList& message : outbox_.take_own()) handle(self_, message, now);
    if (outbox_.has_own()) continue;
    if (!call_) return;
    if (chosen_) {
      if ((*chosen_)[self_.index()] != 0) return end_call(*chosen_, Presence::away);
      return fail(ErrorKind::aborted, roll_.names(*chosen_) + " went on without this rank");
    }
    if (now >= call_->deadline) return fail(ErrorKind::deadline_exceeded, deadline_text(roll_, proposer_));
    if (auto differing = roll_.differing_calls()) return fail(ErrorKind::misuse, std::move(*differing));
    if (roll_.leader() == self_) lead(now);
    if (!outbox_.has_own()) return;
  }
}

// Begins a ballot, unless the one under way still fits.
void Agreement::lead(TimePoint now) {
  const MemberSet missing = roll_.missing();
  if (std::ranges::find(missing, 1) != missing.end()) return;
  const MemberSet quorum = roll_.quorum();
  const MemberSet acceptors = roll_.acceptors(quorum);
  if (proposer_.is_active() && proposer_.quorum() == acceptors) return;
  const bool has_changed = !call_->doubted.empty() && call_->doubted != quorum;
  if (call_->wait_until && !has_changed) return;
  call_->wait_until.reset();
  if (!roll_.may_decide(quorum)) {
    if (doubt(quorum, now)) return;
    return fail(ErrorKind::aborted, roll_.too_few(quorum), Presence::resigned);
  }
  call_->doubted.clear();
  const wire::Ballot ballot = proposer_.begin(acceptors, quorum);
  outbox_.send_to(acceptors, {.kind = MemberListKind::prepare, .ballot = ballot, .members = quorum});
}

bool Agreement::doubt(const MemberSet& quorum, TimePoint now) {
  constexpr int kRounds = 50;
  if (call_->doubted == quorum || !roll_.is_divided(quorum)) return false;
  call_->doubted = quorum;
  call_->wait_until = now + kRounds * retry_;
  return true;
}

void Agreement::end_call(ShrinkVerdict verdict, Presence presence) {
  verdict_ = std::move(verdict);
  abandon();
  roll_.leave(presence);
}

void Agreement::abandon() {
  call_.reset();
  proposer_.stop();
  roll_.leave(Presence::away);
}

void Agreement::fail(ErrorKind kind, std::string what, Presence presence) {
  end_call(Failure(kind, std::move(what)), presence);
  if (!chosen_) outbox_.send_to_others(roll_.losses(), roll_.suspects());
}

void Agreement::handle(GroupRank from, const MemberList& message, TimePoint now) {
  switch (message.kind) {
    case MemberListKind::suspects: return on_suspects(from, message);
    case MemberListKind::prepare:
    case MemberListKind::proposal: return on_request(from, message);
    case MemberListKind::promise:
    case MemberListKind::accept:
    case MemberListKind::reject: return on_answer(from, message, now);
    case MemberListKind::commit: return choose(message.members);
  }
}

void Agreement::on_suspects(GroupRank from, const MemberList& message) {
  if (chosen_ && message.presence == Presence::here) {
    return outbox_.send(from, {.kind = MemberListKind::commit, .members = *chosen_});
  }
  if (message.presence != Presence::closed) return roll_.note(from, message);
  if (roll_.lose(from, LossGrade::left) && call_) outbox_.send_to_others(roll_.losses(), roll_.suspects());
}

void Agreement::on_request(GroupRank from, const MemberList& message) {
  proposer_.see(message.ballot);
  if (chosen_) return outbox_.send(from, {.kind = MemberListKind::commit, .members = *chosen_});
  const bool is_proposal = message.kind == MemberListKind::proposal;
  const bool agrees =
      is_proposal ? acceptor_.accept(message.ballot, message.members) : acceptor_.promise(message.ballot);
  const MemberSet nothing(roll_.size(), 0);
  if (!agrees) {
    return outbox_.send(
        from,
        {.kind = MemberListKind::reject, .ballot = message.ballot, .other = acceptor_.promised(), .members = nothing});
  }
  if (is_proposal)
    return outbox_.send(from, {.kind = MemberListKind::accept, .ballot = message.ballot, .members = nothing});
  const Acceptor::Accepted& accepted = acceptor_.accepted();
  outbox_.send(from, {.kind = MemberListKind::promise,
                      .ballot = message.ballot,
                      .other = accepted.ballot,
                      .members = accepted.ballot.round == 0 ? nothing : accepted.value});
}

// A rank whose ballot was rejected waits the longer, the higher it is: two that reject each other's ballots get out of
// each other's way.
void Agreement::on_answer(GroupRank from, const MemberList& message, TimePoint now) {
  proposer_.see(message.other);
  if (chosen_ || !call_ || !proposer_.is_mine(message.ballot)) return;
  if (message.kind == MemberListKind::reject) {
    proposer_.stop();
    call_->wait_until = now + ++call_->rejections * (1 + self_.value()) * retry_;
  } else if (message.kind == MemberListKind::accept) {
    if (proposer_.on_accept(from, message.ballot)) choose(proposer_.value());
  } else if (proposer_.on_promise(from, message.ballot, {message.other, message.members})) {
    outbox_.send_to(proposer_.quorum(),
                    {.kind = MemberListKind::proposal, .ballot = message.ballot, .members = proposer_.value()});
  }
}

void Agreement::choose(const MemberSet& value) {
  if (chosen_) return;
  outbox_.send_to_others(roll_.losses(), {.kind = MemberListKind::commit, .members = value});
  chosen_ = value;
}

void Outbox::send(GroupRank to, MemberList message) {
  if (to == self_) return own_.push_back(std::move(message));
  outgoing_.push_back({to, std::move(message)});
}

void Outbox::send_to(const MemberSet& members, const MemberList& message) {
  for (GroupRank member(0); member.index() < members.size(); ++member) {
    if (members[member.index()] != 0) send(member, message);
  }
}

void Outbox::send_to_others(const Losses& losses, const MemberList& message) {
  for (GroupRank member(0); member.index() < losses.size(); ++member) {
    const auto& loss = losses[member.index()];
    if (member != self_ && (!loss || *loss == LossGrade::silent)) send(member, message);
  }
}

}  // namespace qccl::engine
