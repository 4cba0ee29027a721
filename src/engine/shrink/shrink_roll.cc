#include "engine/shrink/shrink_roll.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace qccl::engine {

using wire::MemberList;
using wire::Presence;

namespace {

bool is_certain(std::optional<LossGrade> loss) { return loss && *loss != LossGrade::silent; }

std::size_t count(const MemberSet& members) {
  return static_cast<std::size_t>(std::ranges::count_if(members, [](std::uint8_t member) { return member != 0; }));
}

}  // namespace

std::string name_ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// Not by one nested initializer: where memory runs out in it, GCC 12 frees a part twice.
ShrinkRoll::ShrinkRoll(std::vector<int> ranks, GroupRank self) : ranks_(std::move(ranks)), self_(self) {
  Report nothing;
  nothing.terms.without.resize(ranks_.size());
  nothing.losses.resize(ranks_.size());
  reports_.assign(ranks_.size(), nothing);
}

void ShrinkRoll::enter(ShrinkTerms terms, Losses losses) {
  reports_[self_.index()] = {Presence::here, std::move(terms), std::move(losses)};
}

bool ShrinkRoll::lose(GroupRank member, LossGrade grade) {
  auto& loss = reports_[self_.index()].losses[member.index()];
  if (is_certain(loss) || loss == grade) return false;
  loss = grade;
  return true;
}

void ShrinkRoll::note(GroupRank from, const MemberList& message) {
  Report& report = reports_[from.index()];
  report.presence = message.presence;
  report.terms.any_quorum = message.any_quorum;
  for (std::size_t member = 0; member < message.members.size(); ++member) {
    const std::uint8_t told = message.members[member];
    const int grade = told & ~MemberList::kLeftOut;
    report.terms.without[member] = (told & MemberList::kLeftOut) != 0 ? 1 : 0;
    report.losses[member] = grade == 0 ? std::nullopt : std::optional(static_cast<LossGrade>(grade - 1));
  }
}

std::optional<LossGrade> ShrinkRoll::reported(GroupRank member) const {
  std::optional<LossGrade> surest;
  for (const Report& report : reports_) {
    const auto& loss = report.losses[member.index()];
    if (loss && (!surest || is_certain(loss))) surest = loss;
  }
  return surest;
}

MemberList ShrinkRoll::suspects() const {
  MemberList message{.presence = own().presence, .any_quorum = own().terms.any_quorum};
  for (std::size_t member = 0; member < size(); ++member) {
    const auto& loss = own().losses[member];
    const int grade = loss ? 1 + static_cast<int>(*loss) : 0;
    const bool is_left_out = own().terms.without[member] != 0;
    message.members.push_back(static_cast<std::uint8_t>(grade | (is_left_out ? MemberList::kLeftOut : 0)));
  }
  return message;
}

bool ShrinkRoll::may_go_on(GroupRank member) const {
  return !own().losses[member.index()] && !leaves_out(self_, member) && of(member).presence != Presence::resigned;
}

// A call that leaves this rank out is none that it takes part in.
bool ShrinkRoll::has_called(GroupRank member) const {
  return of(member).presence == Presence::here && !leaves_out(member, self_);
}

template <class Condition>
MemberSet ShrinkRoll::select(Condition condition) const {
  MemberSet members(size(), 0);
  for (GroupRank member(0); member.index() < size(); ++member) members[member.index()] = condition(member) ? 1 : 0;
  return members;
}

GroupRank ShrinkRoll::leader() const {
  GroupRank lowest(0);
  while (lowest < self_ && !may_go_on(lowest)) ++lowest;
  return lowest;
}

MemberSet ShrinkRoll::missing() const {
  return select([&](GroupRank member) { return may_go_on(member) && !has_called(member); });
}

MemberSet ShrinkRoll::quorum() const {
  std::vector<GroupRank> chosen{self_};
  const auto are_together = [this](GroupRank a, GroupRank b) {
    return !of(a).losses[b.index()] && !of(b).losses[a.index()];
  };
  return select([&](GroupRank member) {
    if (member == self_) return true;
    const bool fits = may_go_on(member) && has_called(member) &&
                      std::ranges::all_of(chosen, [&](GroupRank other) { return are_together(member, other); });
    if (fits) chosen.push_back(member);
    return fits;
  });
}

bool ShrinkRoll::is_divided(const MemberSet& quorum) const {
  return quorum != select([&](GroupRank member) { return may_go_on(member) && has_called(member); });
}

// By what this rank holds for lost and any of the quorum has seen to end.
bool ShrinkRoll::is_certainly_lost(GroupRank member, const MemberSet& quorum) const {
  if (!own().losses[member.index()]) return false;
  for (GroupRank witness(0); witness.index() < size(); ++witness) {
    if (quorum[witness.index()] != 0 && is_certain(of(witness).losses[member.index()])) return true;
  }
  return false;
}

MemberSet ShrinkRoll::acceptors(const MemberSet& quorum) const {
  return select([&](GroupRank member) {
    return quorum[member.index()] != 0 || (leaves_out(self_, member) && !own().losses[member.index()]);
  });
}

bool ShrinkRoll::may_decide(const MemberSet& quorum) const {
  if (own().terms.any_quorum) return true;
  const MemberSet accepting = acceptors(quorum);
  const MemberSet uncertain =
      select([&](GroupRank member) { return accepting[member.index()] == 0 && !is_certainly_lost(member, quorum); });
  if (count(uncertain) == 0 || 2 * count(accepting) > size()) return true;
  return 2 * count(accepting) == size() && accepting.front() != 0;
}

std::string ShrinkRoll::names(const MemberSet& members) const {
  std::vector<int> named;
  for (std::size_t member = 0; member < size(); ++member) {
    if (members[member] != 0) named.push_back(ranks_[member]);
  }
  return name_ranks(named);
}

std::string ShrinkRoll::describe(GroupRank caller) const {
  const ShrinkTerms& terms = of(caller).terms;
  const std::string left_out = count(terms.without) == 0 ? "nobody" : names(terms.without);
  return fmt::format("rank {} leaves out {}, quorum {}", ranks_[caller.index()], left_out,
                     terms.any_quorum ? "any" : "majority");
}

std::optional<std::string> ShrinkRoll::differing_calls() const {
  for (GroupRank member(0); member.index() < size(); ++member) {
    if (!may_go_on(member) || !has_called(member) || of(member).terms == own().terms) continue;
    return fmt::format("calls differ: {}; {}. Give the same list and quorum on all ranks", describe(self_),
                       describe(member));
  }
  return std::nullopt;
}

std::string ShrinkRoll::too_few(const MemberSet& quorum) const {
  const MemberSet live = select([&](GroupRank member) { return !own().losses[member.index()]; });
  const MemberSet others =
      select([&](GroupRank member) { return live[member.index()] == 0 && !is_certainly_lost(member, quorum); });
  const std::string apart = count(others) == 0 ? "" : fmt::format(" ({})", names(others));
  return fmt::format(
      "too few to go on: {} of {}, the others may still be running{}. It takes more than half of the members, or the "
      "half with the lowest rank; Quorum::any goes on all the same",
      count(live), size(), apart);
}

}  // namespace qccl::engine
