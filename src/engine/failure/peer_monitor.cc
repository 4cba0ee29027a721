#include "engine/failure/peer_monitor.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace qccl::engine {

PeerMonitor::PeerMonitor(const PeerMonitorOptions& options, TimePoint now)
    : options_(options),
      peers_(static_cast<std::size_t>(options.world)),
      next_heartbeat_(saturating_add(now, options.heartbeat_interval)) {
  for (Peer& peer : peers_) peer.last_heard = now;
  losses_.reserve(peers_.size());
  due_.reserve(peers_.size());
}

bool PeerMonitor::lose(WorldRank peer, const std::string& what) {
  Peer& lost = at(peer);
  if (lost.lost) return false;
  lost.lost = true;
  lost.what = what;
  return true;
}

std::span<const Transport::PeerLoss> PeerMonitor::poll(Transport& transport) {
  due_.swap(losses_);
  losses_.clear();
  for (const auto& loss : due_) at(loss.peer).gone = true;
  while (auto loss = transport.next_loss()) losses_.push_back(std::move(*loss));
  return due_;
}

std::vector<GroupRank> PeerMonitor::suspects(const Group& group, const std::vector<GroupRank>& waited_for,
                                             TimePoint now) const {
  const auto last_heard = [&](GroupRank member) { return (*this)[group.world_rank(member)].last_heard; };
  const auto is_silent = [&](GroupRank member) {
    return member != group.rank && (now - last_heard(member)) * 2 / 5 > options_.heartbeat_interval;
  };
  std::vector<GroupRank> silent;
  std::copy_if(waited_for.begin(), waited_for.end(), std::back_inserter(silent), is_silent);
  const bool all_live = silent.empty();
  for (GroupRank member(0); all_live && member.value() < group.world(); ++member) {
    if (is_silent(member)) silent.push_back(member);
  }
  std::stable_sort(silent.begin(), silent.end(),
                   [&](GroupRank a, GroupRank b) { return last_heard(a) < last_heard(b); });
  return silent.empty() ? waited_for : silent;
}

bool PeerMonitor::any_is_silent(TimePoint now) const {
  for (WorldRank peer(0); peer.value() < options_.world; ++peer) {
    if (peer != options_.rank && !(*this)[peer].lost && silence(peer, now) >= options_.peer_timeout) return true;
  }
  return false;
}

void PeerMonitor::beat(FrameSender& frame_sender, TimePoint now) {
  next_heartbeat_ = saturating_add(now, options_.heartbeat_interval);
  for (WorldRank peer(0); peer.value() < options_.world; ++peer) {
    const Peer& to = (*this)[peer];
    if (peer == options_.rank || to.lost || to.departed) continue;
    if (now - frame_sender.last_sent(peer) < options_.heartbeat_interval) continue;
    // Best effort: a peer that takes nothing is found by its own silence.
    static_cast<void>(frame_sender.send_control(peer, {.kind = wire::FrameKind::heartbeat}));
  }
}

}  // namespace qccl::engine
