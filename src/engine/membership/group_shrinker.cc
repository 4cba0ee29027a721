#include "engine/membership/group_shrinker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace qccl::engine {

using wire::FrameKind;
using wire::MembershipKind;

namespace {

// Between a rejected ballot and the next one: some rounds of frames between ranks of a busy machine.
constexpr Nanoseconds kLeastRetry = std::chrono::milliseconds(10);

// After that time a connection that has not ended belongs to a member that lives.
constexpr Nanoseconds kParting = std::chrono::seconds(1);

}  // namespace

GroupShrinker::Shrinking* GroupShrinker::find(std::uint64_t group) {
  const auto found = std::ranges::find(shrinkings_, group, [](const auto& each) { return each->group; });
  return found == shrinkings_.end() ? nullptr : found->get();
}

GroupShrinker::Shrinking& GroupShrinker::find_or_make(const Group& group) {
  if (Shrinking* const found = find(group.id)) return *found;
  const Nanoseconds retry = std::max(kLeastRetry, 4 * parts_.peers.longest_round_trip(group));
  shrinkings_.push_back(std::make_unique<Shrinking>(Shrinking{group.id, Agreement(group.ranks, group.rank, retry)}));
  return *shrinkings_.back();
}

void GroupShrinker::begin(std::uint64_t id, ShrinkCall call) {
  const Group* const group = parts_.groups.find(id);
  if (group == nullptr) {
    return end_call(call, {.kind = ErrorKind::misuse, .message = "QCCL: this communicator is closed"});
  }
  Shrinking& shrinking = find_or_make(*group);
  if (shrinking.call) {
    return end_call(call, failures_.group_error(*group, ErrorKind::misuse, {},
                                                "shrink: another thread calls shrink() of this group"));
  }
  const TimePoint now = parts_.now = parts_.clock.now();
  call.patience = std::max(call.patience, kLeastPatienceBeats * parts_.options.heartbeat_interval);
  shrinking.deadline = saturating_add(now, call.timeout);
  shrinking.call = std::move(call);
  shrinking.agreement.enter(shrinking.call->terms, known_losses(*group), shrinking.deadline, now);
  advance(shrinking);
}

Losses GroupShrinker::known_losses(const Group& group) const {
  Losses losses;
  for (const int rank : group.ranks) losses.push_back(parts_.peers[WorldRank(rank)].loss());
  losses[group.rank.index()].reset();
  return losses;
}

void GroupShrinker::on_frame(Group& group, WorldRank peer, ConstBytes payload) {
  const auto message = wire::decode_membership(payload, group.ranks.size());
  if (!message.ok()) {
    return peer_failures_.give_up(peer, ErrorKind::corrupt_data, "sent a bad frame: " + message.error().message);
  }
  Shrinking& shrinking = find_or_make(group);
  shrinking.agreement.receive(group.group_rank(peer), message.value(), parts_.now);
  send(group, shrinking.agreement);
}

void GroupShrinker::answer_for_closed(std::uint64_t group, WorldRank peer, ConstBytes payload) {
  // The kind and the presence say enough; the group's size is not known any more.
  const std::size_t members = payload.size() - std::min(payload.size(), wire::kMembershipHeadBytes);
  const auto message = wire::decode_membership(payload, members);
  if (!message.ok() || message.value().kind != MembershipKind::suspects) return;
  if (message.value().presence != wire::Presence::here) return;
  parts_.control.queue(peer, {.kind = FrameKind::membership, .group = group},
                       as_text(wire::encode_membership({.presence = wire::Presence::closed})));
}

void GroupShrinker::close(const Group& group) {
  const auto found = std::ranges::find(shrinkings_, group.id, [](const auto& each) { return each->group; });
  if (found == shrinkings_.end()) return;
  if ((*found)->call) {
    end_call(*(*found)->call, failures_.group_error(group, ErrorKind::misuse, {}, "shrink: the group was closed"));
  }
  shrinkings_.erase(found);
}

// A rank that was stopped itself has heard nobody meanwhile.
void GroupShrinker::advance() {
  const TimePoint now = parts_.now;
  const Nanoseconds pause = now - std::exchange(last_look_, now);
  if (pause > kLeastPatienceBeats * parts_.options.heartbeat_interval / 2) awake_since_ = now;
  for (const auto& shrinking : shrinkings_) advance(*shrinking);
}

void GroupShrinker::advance(Shrinking& shrinking) {
  Group* const group = parts_.groups.find(shrinking.group);
  if (group == nullptr) return;
  if (!shrinking.left_out.empty()) part(shrinking, *group);
  const bool is_over = !shrinking.call && (shrinking.has_ended_group || !shrinking.agreement.chosen());
  if (is_over) return;
  if (shrinking.call) {
    look_for_losses(shrinking, *group);
    shrinking.agreement.advance(parts_.now);
  }
  send(*group, shrinking.agreement);
  if (auto verdict = shrinking.agreement.take_verdict()) shrinking.verdict = std::move(verdict);
  if (shrinking.agreement.chosen() && !has_passed_on(shrinking, *group)) return;
  if (shrinking.agreement.chosen() && !shrinking.has_ended_group) end_group(shrinking, *group);
  if (shrinking.verdict) deliver(shrinking, *group);
}

void GroupShrinker::look_for_losses(Shrinking& shrinking, const Group& group) {
  for (GroupRank member(0); member.value() < group.world(); ++member) {
    if (member == group.rank) continue;
    const WorldRank peer = group.world_rank(member);
    auto loss = parts_.peers[peer].loss();
    if (!loss && parts_.now - last_heard(peer) >= shrinking.call->patience) loss = LossGrade::silent;
    if (loss) shrinking.agreement.lose(member, *loss, parts_.now);
  }
}

void GroupShrinker::send(const Group& group, Agreement& agreement) {
  for (const auto& [to, message] : agreement.take_outgoing()) {
    const WorldRank peer = group.world_rank(to);
    if (parts_.peers[peer].lost) continue;
    parts_.control.queue(peer, {.kind = FrameKind::membership, .group = group.id},
                         as_text(wire::encode_membership(message)));
  }
  if (!parts_.control.empty()) parts_.control.send();
}

// A member that takes nothing keeps a call from its end only until the deadline.
bool GroupShrinker::has_passed_on(const Shrinking& shrinking, const Group& group) const {
  if (shrinking.call && parts_.now >= shrinking.deadline) return true;
  const MemberSet& chosen = *shrinking.agreement.chosen();
  for (GroupRank member(0); member.value() < group.world(); ++member) {
    const WorldRank peer = group.world_rank(member);
    const bool must_have_it =
        chosen[member.index()] != 0 && !shrinking.agreement.roll().losses()[member.index()] && !parts_.peers[peer].lost;
    if (must_have_it && parts_.control.holds(peer, FrameKind::membership)) return false;
  }
  return true;
}

// A member that was left out on purpose keeps its connections, which other groups may need.
void GroupShrinker::end_group(Shrinking& shrinking, Group& group) {
  shrinking.has_ended_group = true;
  const MemberSet& chosen = *shrinking.agreement.chosen();
  const std::string names = shrinking.agreement.roll().names(chosen);
  const auto error = [&](const std::string& what) {
    return failures_.group_error(group, ErrorKind::aborted, {}, what);
  };
  if (chosen[group.rank.index()] == 0) {
    return failures_.end(group, error(names + " went on without this rank, in a new group"));
  }
  failures_.fail(group, error("shrink() made a new group of " + names + ", which goes on"), false);
  if (!shrinking.call) return;
  shrinking.parting = parts_.now + kParting;
  for (std::size_t member = 0; member < chosen.size(); ++member) {
    shrinking.left_out.push_back(chosen[member] == 0 && shrinking.call->terms.without[member] == 0 ? 1 : 0);
  }
  part(shrinking, group);
}

// Gives up those that are left out: the silent ones at once. The end of the connection of one that others have lost may
// still be on its way here, and is the better reason.
void GroupShrinker::part(Shrinking& shrinking, const Group& group) {
  for (GroupRank member(0); member.index() < shrinking.left_out.size(); ++member) {
    std::uint8_t& is_left_out = shrinking.left_out[member.index()];
    const WorldRank peer = group.world_rank(member);
    const bool is_due = shrinking.agreement.roll().losses()[member.index()] || parts_.now >= shrinking.parting;
    if (is_left_out == 0 || (!parts_.peers[peer].loss() && !is_due)) continue;
    is_left_out = 0;
    if (parts_.peers[peer].loss()) continue;
    peer_failures_.give_up(peer, ErrorKind::aborted,
                           fmt::format("was left out: {} go on without it",
                                       shrinking.agreement.roll().names(*shrinking.agreement.chosen())));
  }
  if (std::ranges::find(shrinking.left_out, 1) == shrinking.left_out.end()) shrinking.left_out.clear();
}

void GroupShrinker::deliver(Shrinking& shrinking, const Group& group) {
  const auto call = std::exchange(shrinking.call, std::nullopt);
  const auto verdict = std::exchange(shrinking.verdict, std::nullopt);
  if (!call) return;
  if (!verdict->ok()) {
    const ErrorInfo& why = verdict->error();
    ErrorInfo failure = failures_.group_error(group, why.kind, {}, "shrink: " + why.message);
    failure.operation = "shrink";
    return parts_.ended.push(call->work, std::make_shared<const ErrorInfo>(std::move(failure)));
  }
  for (GroupRank member(0); member.value() < group.world(); ++member) {
    if (verdict->value()[member.index()] != 0) call->then->push_back(member);
  }
  parts_.ended.push(call->work, nullptr);
}

void GroupShrinker::end_call(ShrinkCall& call, ErrorInfo failure) {
  failure.rank = parts_.options.rank.value();
  failure.operation = "shrink";
  parts_.ended.push(call.work, std::make_shared<const ErrorInfo>(std::move(failure)));
}

TimePoint GroupShrinker::next_timer() const {
  TimePoint next = kForever;
  for (const auto& shrinking : shrinkings_) {
    const Group* const group = parts_.groups.find(shrinking->group);
    if (group != nullptr && !shrinking->left_out.empty()) next = std::min(next, shrinking->parting);
    if (!shrinking->call || group == nullptr) continue;
    next = std::min({next, shrinking->agreement.next_timer(), next_silence(*shrinking, *group)});
    if (shrinking->verdict) next = std::min(next, shrinking->deadline);
  }
  return next;
}

TimePoint GroupShrinker::next_silence(const Shrinking& shrinking, const Group& group) const {
  TimePoint next = kForever;
  for (GroupRank member(0); member.value() < group.world(); ++member) {
    const WorldRank peer = group.world_rank(member);
    if (member == group.rank || shrinking.agreement.roll().losses()[member.index()]) continue;
    next = std::min(next, saturating_add(last_heard(peer), shrinking.call->patience));
  }
  return next;
}

std::vector<LostRank> GroupShrinker::lost(std::uint64_t id) const {
  std::vector<LostRank> list;
  const Group* const group = parts_.groups.find(id);
  const auto shrinking = std::ranges::find(shrinkings_, id, [](const auto& each) { return each->group; });
  const auto is_parting = [](const Shrinking& of, GroupRank member) {
    return !of.left_out.empty() && of.left_out[member.index()] != 0;
  };
  for (GroupRank member(0); group != nullptr && member.value() < group->world(); ++member) {
    const WorldRank peer = group->world_rank(member);
    if (member == group->rank) continue;
    if (const auto grade = parts_.peers[peer].loss()) {
      const std::string reason = *grade == LossGrade::left ? "left the job" : parts_.peers[peer].what;
      list.push_back({member.value(), *grade, fmt::format("rank {} {}", peer, reason)});
    } else if (shrinking != shrinkings_.end() && is_parting(**shrinking, member)) {
      const LossGrade reported = (*shrinking)->agreement.roll().reported(member).value_or(LossGrade::silent);
      list.push_back({member.value(), reported, fmt::format("rank {} was lost by other members", peer)});
    }
  }
  return list;
}

}  // namespace qccl::engine
