#include "engine/act/group_shrinker.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

namespace qccl::engine {

using wire::FrameKind;
using wire::MemberListKind;

namespace {

// Between a rejected ballot and the next one: some rounds of frames between ranks of a busy machine.
constexpr Nanoseconds kLeastRetry = std::chrono::milliseconds(10);

// Awaits an answer.
bool is_request(MemberListKind kind) { return kind == MemberListKind::prepare || kind == MemberListKind::proposal; }

constexpr const char* kClosed = "shrink: the group was closed";

// After that time a connection that has not ended belongs to a member that lives.
constexpr Nanoseconds kParting = std::chrono::seconds(1);

}  // namespace

bool Shrinking::is_over() {
  if (call || !agreement.outbox().is_empty()) return false;
  return has_ended_group || !agreement.chosen();
}

// A member that was left out on purpose, or has closed the group, keeps its connections, which other groups may need.
void Shrinking::begin_parting(TimePoint now) {
  MemberSet others = *agreement.chosen();
  for (std::size_t member = 0; member < others.size(); ++member) {
    const bool goes_on = others[member] != 0;
    const bool is_elsewhere = call->terms.without[member] != 0 || agreement.roll().losses()[member] == LossGrade::left;
    others[member] = goes_on || is_elsewhere ? 0 : 1;
  }
  parting = saturating_add(now, kParting);
  left_out = std::move(others);
}

std::optional<LostRank> Shrinking::lost_elsewhere(GroupRank member, WorldRank peer) const {
  const ShrinkRoll& roll = agreement.roll();
  if (roll.losses()[member.index()] == LossGrade::left) {
    return LostRank{member.value(), LossGrade::left, fmt::format("rank {} closed the group", peer)};
  }
  if (left_out.empty() || left_out[member.index()] == 0) return std::nullopt;
  return LostRank{member.value(), roll.reported(member).value_or(LossGrade::silent),
                  fmt::format("rank {} was lost by other members", peer)};
}

Shrinking* GroupShrinker::find(std::uint64_t group) const {
  const auto found = std::ranges::find(shrinkings_, group, [](const auto& each) { return each->group; });
  return found == shrinkings_.end() ? nullptr : found->get();
}

Shrinking& GroupShrinker::find_or_make(const Group& group) {
  if (Shrinking* const found = find(group.id)) return *found;
  const Nanoseconds retry = std::max(kLeastRetry, 4 * peers_.longest_round_trip(group));
  shrinkings_.push_back(std::make_unique<Shrinking>(Shrinking{group.id, Agreement(group.ranks, group.rank, retry)}));
  return *shrinkings_.back();
}

void GroupShrinker::begin(std::uint64_t id, ShrinkCall call) {
  Group* const group = groups_.find(id);
  if (group == nullptr) {
    return refuse(call, {.kind = ErrorKind::misuse, .message = "QCCL: this communicator is closed"});
  }
  Shrinking& shrinking = find_or_make(*group);
  if (auto failure = misuse(shrinking, *group)) return refuse(call, std::move(*failure));
  const TimePoint now = clock_.read();
  const Nanoseconds least = kLeastPatienceBeats * options_.heartbeat_interval + 4 * peers_.longest_round_trip(*group);
  call.patience = std::max(call.patience, least);
  shrinking.deadline = saturating_add(now, call.timeout);
  shrinking.call = std::move(call);
  try {
    shrinking.agreement.enter(shrinking.call->terms, known_losses(*group), shrinking.deadline, now);
    advance(shrinking, *group);
  } catch (const std::bad_alloc&) {
    abandon(shrinking);
  }
}

std::optional<ErrorInfo> GroupShrinker::misuse(const Shrinking& shrinking, const Group& group) const {
  const auto refusal = [&](const char* why) { return failures_.group_error(group, ErrorKind::misuse, {}, why); };
  if (shrinking.call) return refusal("shrink: another thread calls shrink() of this group");
  if (!shrinking.has_successor) return std::nullopt;
  return refusal("shrink: this group was shrunk before; shrink the group that shrink() returned");
}

Losses GroupShrinker::known_losses(const Group& group) const {
  Losses losses;
  for (const int rank : group.ranks) losses.push_back(peers_[WorldRank(rank)].loss());
  losses[group.rank.index()].reset();
  return losses;
}

void GroupShrinker::on_frame(Group& group, WorldRank peer, ConstBytes payload) {
  const auto give_up = [&](const std::string& why) {
    peer_failures_.give_up(peer, ErrorKind::corrupt_data, "sent a bad frame: " + why);
  };
  const auto message = wire::decode_member_list(payload, group.ranks.size());
  if (!message.ok()) return give_up(message.error().message);
  const GroupRank member = group.group_rank(peer);
  if (is_request(message.value().kind) &&
      message.value().ballot.proposer != static_cast<std::uint32_t>(member.value())) {
    return give_up("member list of another member's ballot");
  }
  if (control_.size() >= kMaxStoredFrames) return give_up("it asks for more answers than it takes");
  Shrinking& shrinking = find_or_make(group);
  shrinking.agreement.receive(member, message.value(), clock_.now());
  send(group, shrinking.agreement);
}

void GroupShrinker::answer_for_closed(std::uint64_t group, WorldRank peer, ConstBytes payload) {
  // The kind and the presence say enough; the group's size is not known any more.
  const std::size_t members = payload.size() - std::min(payload.size(), wire::kMemberListHeadBytes);
  const auto message = wire::decode_member_list(payload, members);
  if (!message.ok() || control_.size() >= kMaxStoredFrames) return;
  const MemberListKind kind = message.value().kind;
  const bool has_called = kind == MemberListKind::suspects && message.value().presence == wire::Presence::here;
  if (has_called || is_request(kind)) tell_closed(group, peer);
}

void GroupShrinker::tell_closed(std::uint64_t group, WorldRank peer) {
  control_.queue(peer, {.kind = FrameKind::member_list, .group = group},
                 as_text(wire::encode_member_list({.presence = wire::Presence::closed})));
}

// Members that are in shrink() wait for this rank no longer. One that learns of a commit needs to know no more.
void GroupShrinker::close(const Group& group) {
  const auto found = std::ranges::find(shrinkings_, group.id, [](const auto& each) { return each->group; });
  if (found == shrinkings_.end()) return;
  const std::unique_ptr<Shrinking> closing = std::move(*found);
  shrinkings_.erase(found);
  try {
    if (closing->call) refuse(*closing->call, failures_.group_error(group, ErrorKind::misuse, {}, kClosed));
    closing->call.reset();
    if (closing->agreement.chosen()) return;
    for (GroupRank member(0); member.value() < group.world(); ++member) {
      const WorldRank peer = group.world_rank(member);
      if (member != group.rank && !peers_[peer].loss()) tell_closed(group.id, peer);
    }
  } catch (const std::bad_alloc&) {
    abandon(*closing);
  }
}

// A rank that was stopped itself has heard nobody meanwhile.
void GroupShrinker::advance() {
  const TimePoint now = clock_.now();
  const Nanoseconds pause = now - std::exchange(last_look_, now);
  if (pause > kLeastPatienceBeats * options_.heartbeat_interval / 2) awake_since_ = now;
  for (const auto& shrinking : shrinkings_) {
    Group* const group = groups_.find(shrinking->group);
    if (group == nullptr) continue;
    try {
      if (!shrinking->left_out.empty()) part(*shrinking, *group);
      if (!shrinking->is_over()) advance(*shrinking, *group);
    } catch (const std::bad_alloc&) {
      abandon(*shrinking);
    }
  }
}

void GroupShrinker::advance(Shrinking& shrinking, Group& group) {
  Agreement& agreement = shrinking.agreement;
  if (shrinking.call) {
    look_for_losses(shrinking, group);
    agreement.advance(clock_.now());
  }
  send(group, agreement);
  if (auto verdict = agreement.take_verdict()) shrinking.verdict = std::move(verdict);
  if (agreement.chosen() && !has_passed_on(shrinking, group)) return;
  if (agreement.chosen() && !shrinking.has_ended_group) end_group(shrinking, group);
  if (shrinking.verdict) deliver(shrinking, group);
}

void GroupShrinker::look_for_losses(Shrinking& shrinking, const Group& group) {
  for (GroupRank member(0); member.value() < group.world(); ++member) {
    if (member == group.rank) continue;
    const WorldRank peer = group.world_rank(member);
    auto loss = peers_[peer].loss();
    if (!loss && clock_.now() - last_heard(peer) >= shrinking.call->patience) loss = LossGrade::silent;
    if (loss) shrinking.agreement.lose(member, *loss, clock_.now());
  }
}

void GroupShrinker::send(const Group& group, Agreement& agreement) {
  Outbox& outbox = agreement.outbox();
  for (; const Outbox::Outgoing* const next = outbox.front(); outbox.pop()) {
    const WorldRank peer = group.world_rank(next->to);
    if (peers_[peer].lost) continue;
    control_.queue(peer, {.kind = FrameKind::member_list, .group = group.id},
                   as_text(wire::encode_member_list(next->message)));
  }
  if (!control_.empty()) control_.send();
}

// A member that takes nothing keeps a call from its end only until the deadline.
bool GroupShrinker::has_passed_on(const Shrinking& shrinking, const Group& group) const {
  if (shrinking.call && clock_.now() >= shrinking.deadline) return true;
  const MemberSet& chosen = *shrinking.agreement.chosen();
  for (GroupRank member(0); member.value() < group.world(); ++member) {
    const WorldRank peer = group.world_rank(member);
    const bool must_have_it =
        chosen[member.index()] != 0 && !shrinking.agreement.roll().losses()[member.index()] && !peers_[peer].lost;
    if (must_have_it && control_.holds(peer, FrameKind::member_list)) return false;
  }
  return true;
}

void GroupShrinker::end_group(Shrinking& shrinking, Group& group) {
  const MemberSet& chosen = *shrinking.agreement.chosen();
  const std::string names = shrinking.agreement.roll().names(chosen);
  const bool goes_on = chosen[group.rank.index()] != 0;
  ErrorInfo failure = failures_.group_error(group, ErrorKind::aborted, {},
                                            goes_on ? "shrink() made a new group of " + names + ", which goes on"
                                                    : names + " went on without this rank, in a new group");
  goes_on ? failures_.fail(group, std::move(failure), false) : failures_.end(group, std::move(failure));
  shrinking.has_ended_group = true;
}

// Gives up those that are left out: the silent ones at once. The end of the connection of one that others have lost may
// still be on its way here, and is the better reason.
void GroupShrinker::part(Shrinking& shrinking, const Group& group) {
  for (GroupRank member(0); member.index() < shrinking.left_out.size(); ++member) {
    std::uint8_t& is_left_out = shrinking.left_out[member.index()];
    const WorldRank peer = group.world_rank(member);
    const bool is_due = shrinking.agreement.roll().losses()[member.index()] || clock_.now() >= shrinking.parting;
    if (is_left_out == 0 || (!peers_[peer].loss() && !is_due)) continue;
    is_left_out = 0;
    if (peers_[peer].loss()) continue;
    peer_failures_.give_up(peer, ErrorKind::aborted,
                           fmt::format("was left out: {} go on without it",
                                       shrinking.agreement.roll().names(*shrinking.agreement.chosen())));
  }
  if (std::ranges::find(shrinking.left_out, 1) == shrinking.left_out.end()) shrinking.left_out.clear();
}

void GroupShrinker::deliver(Shrinking& shrinking, const Group& group) {
  const ShrinkVerdict& verdict = *shrinking.verdict;
  internal::SharedFailure failure;
  if (!shrinking.call) return shrinking.verdict.reset();
  if (verdict.ok()) {
    std::vector<GroupRank> members;
    for (GroupRank member(0); member.value() < group.world(); ++member) {
      if (verdict.value()[member.index()] != 0) members.push_back(member);
    }
    shrinking.begin_parting(clock_.now());
    part(shrinking, group);
    *shrinking.call->then = std::move(members);
    shrinking.has_successor = true;
  } else {
    const ErrorInfo& why = verdict.error();
    ErrorInfo info = failures_.group_error(group, why.kind, {}, "shrink: " + why.message);
    info.operation = "shrink";
    failure = std::make_shared<const ErrorInfo>(std::move(info));
  }
  ended_.push(shrinking.call->work, std::move(failure));
  shrinking.call.reset();
  shrinking.verdict.reset();
}

void GroupShrinker::abandon(Shrinking& shrinking) {
  if (!shrinking.call) return;
  ended_.push(shrinking.call->work, failures_.no_memory());
  shrinking.call.reset();
  shrinking.verdict.reset();
  shrinking.agreement.abandon();
}

void GroupShrinker::refuse(const ShrinkCall& call, ErrorInfo failure) {
  failure.rank = options_.rank.value();
  failure.operation = "shrink";
  ended_.push(call.work, std::make_shared<const ErrorInfo>(std::move(failure)));
}

TimePoint GroupShrinker::next_timer() const {
  TimePoint next = kForever;
  for (const auto& shrinking : shrinkings_) {
    const Group* const group = groups_.find(shrinking->group);
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
  const Group* const group = groups_.find(id);
  if (group == nullptr) return list;
  const Shrinking* const shrinking = find(id);
  for (GroupRank member(0); member.value() < group->world(); ++member) {
    const WorldRank peer = group->world_rank(member);
    if (member == group->rank) continue;
    if (const auto grade = peers_[peer].loss()) {
      const std::string reason = *grade == LossGrade::left ? "left the job" : peers_[peer].what;
      list.push_back({member.value(), *grade, fmt::format("rank {} {}", peer, reason)});
    } else if (shrinking != nullptr) {
      if (auto told = shrinking->lost_elsewhere(member, peer)) list.push_back(std::move(*told));
    }
  }
  return list;
}

}  // namespace qccl::engine
