#include "engine/state/peer_monitor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/distance.h"

namespace qccl::engine {
namespace {

// A reset says nothing of a rank on another host that was not heard for a while: after a time without answer, the
// system of a rank that lives drops its connection without a word, and resets it once bytes come through again. That
// rank has then missed this one for as long, and given it up.
LossGrade grade_of(const Transport::PeerLoss& loss, bool is_local, bool is_silent) {
  const bool is_certain = loss.end == Transport::End::by_peer && (is_local || !is_silent);
  return is_certain ? LossGrade::gone : LossGrade::silent;
}

}  // namespace

PeerMonitor::PeerMonitor(WorldRank rank, int world, Nanoseconds heartbeat_interval, Nanoseconds peer_timeout,
                         TimePoint now)
    : rank_(rank),
      heartbeat_interval_(heartbeat_interval),
      peer_timeout_(peer_timeout),
      peers_(static_cast<std::size_t>(world)),
      next_heartbeat_(saturating_add(now, heartbeat_interval)),
      capacity_(peers_.size()) {
  for (Peer& peer : peers_) peer.last_heard = now;
  losses_.reserve(2 * peers_.size());
  due_.reserve(2 * peers_.size());
}

bool PeerMonitor::lose(WorldRank peer, LossGrade grade, const std::string& what) {
  Peer& lost = at(peer);
  if (lost.lost) {
    if (grade != LossGrade::silent) lost.grade = grade;
    return false;
  }
  lost.lost = true;
  lost.grade = grade;
  lost.what = what;
  return true;
}

std::span<const GradedLoss> PeerMonitor::poll(Transport& transport, TimePoint now) {
  due_.swap(losses_);
  losses_.clear();
  for (const GradedLoss& loss : due_) at(loss.peer).gone |= loss.end != Transport::End::faulty;
  while (auto loss = transport.next_loss()) {
    const LossGrade grade = grade_of(*loss, transport.is_local(loss->peer), is_silent(loss->peer, now));
    losses_.push_back({std::move(*loss), grade});
  }
  return due_;
}

std::vector<GroupRank> PeerMonitor::suspects(const Group& group, const std::vector<GroupRank>& waited_for,
                                             TimePoint now) const {
  const auto last_heard = [&](GroupRank member) { return (*this)[group.world_rank(member)].last_heard; };
  const auto is_silent_member = [&](GroupRank member) {
    return member != group.rank && is_silent(group.world_rank(member), now);
  };
  std::vector<GroupRank> silent;
  std::copy_if(waited_for.begin(), waited_for.end(), std::back_inserter(silent), is_silent_member);
  const bool all_live = silent.empty();
  for (GroupRank member(0); all_live && member.value() < group.world(); ++member) {
    if (is_silent_member(member)) silent.push_back(member);
  }
  std::stable_sort(silent.begin(), silent.end(),
                   [&](GroupRank a, GroupRank b) { return last_heard(a) < last_heard(b); });
  return silent.empty() ? waited_for : silent;
}

void PeerMonitor::measure(const Transport& transport) {
  for (WorldRank peer(0); peer.index() < peers_.size(); ++peer) {
    if (peer != rank_ && !at(peer).lost) at(peer).round_trip = transport.round_trip(peer);
  }
  line_.set_round_trip(longest_round_trip());
}

Nanoseconds PeerMonitor::longest_round_trip(const Group& group) const {
  Nanoseconds longest{};
  for (const int rank : group.ranks) longest = std::max(longest, (*this)[WorldRank(rank)].round_trip);
  return longest;
}

Nanoseconds PeerMonitor::longest_round_trip() const {
  return std::ranges::max_element(peers_, {}, &Peer::round_trip)->round_trip;
}

void PeerMonitor::measure_line(Transport& transport, TimePoint now) {
  transport.adapt(now);
  Transport::Acknowledged all;
  for (WorldRank peer(0); peer.index() < peers_.size(); ++peer) {
    const Peer& of = (*this)[peer];
    if (peer == rank_ || of.lost || of.round_trip < kDistantRoundTrip) continue;
    const Transport::Acknowledged one = transport.acknowledged(peer);
    all.bytes += one.bytes;
    all.waits |= one.waits;
    all.resent += one.resent;
    loses_ |= one.loses;
    capacity_.sample(peer.index(), one.bytes, one.waits, of.round_trip, now);
  }
  line_.sample(all.bytes, all.waits, now);
  capacity_.step(all.resent, now);
}

bool PeerMonitor::any_may_wait(const Transport& transport) const {
  for (WorldRank peer(0); peer.index() < peers_.size(); ++peer) {
    const Peer& of = (*this)[peer];
    if (peer != rank_ && !of.lost && !of.departed && !transport.is_local(peer)) return true;
  }
  return false;
}

// Two heartbeats and a half, and the time in which a network far away sends lost packets again.
bool PeerMonitor::is_silent(WorldRank peer, TimePoint now) const {
  return (silence(peer, now) - 4 * (*this)[peer].round_trip) * 2 / 5 > heartbeat_interval_;
}

bool PeerMonitor::any_is_silent(TimePoint now) const {
  for (WorldRank peer(0); peer.index() < peers_.size(); ++peer) {
    if (peer != rank_ && !(*this)[peer].lost && silence(peer, now) >= peer_timeout_) return true;
  }
  return false;
}

void PeerMonitor::beat(FrameSender& frame_sender, TimePoint now) {
  next_heartbeat_ = saturating_add(now, heartbeat_interval_);
  measure(frame_sender.transport());
  for (WorldRank peer(0); peer.index() < peers_.size(); ++peer) {
    const Peer& to = (*this)[peer];
    if (peer == rank_ || to.lost || to.departed) continue;
    if (now - frame_sender.last_sent(peer) < heartbeat_interval_) continue;
    // Best effort: a peer that takes nothing is found by its own silence.
    static_cast<void>(frame_sender.send_control(peer, {.kind = wire::FrameKind::heartbeat}));
  }
}

}  // namespace qccl::engine
