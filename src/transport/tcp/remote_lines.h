// What is learned of the lines to peers on other hosts, and what follows for their connections: how many carry frames,
// how much may be on its way, and which congestion control they have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/distance.h"
#include "os/net/socket.h"
#include "transport/tcp/connection_table.h"
#include "transport/tcp/connection_trial.h"
#include "transport/tcp/line_share.h"
#include "transport/transport.h"

namespace qccl::tcp {

// One thread. The connections must outlive it.
class RemoteLines {
 public:
  // `links`: to peers on other hosts. `tries`: how many connections carry frames to a distant peer is tried; otherwise
  // all do. `watches_losses`: distant connections on a line that loses packets by itself get bbr.
  RemoteLines(const std::vector<Link*>& links, bool tries, bool watches_losses)
      : watches_losses_(watches_losses), share_(count(links)) {
    Nanoseconds longest{};
    std::size_t most = 1;
    for (Link* const link : links) {
      for (const auto& each : link->connections()) connections_.push_back(each.get());
      const Nanoseconds round_trip = os::shortest_round_trip(link->connections().front()->socket());
      if (round_trip < kDistantRoundTrip) continue;
      distant_.push_back(link);
      longest = std::max(longest, round_trip);
      most = std::max(most, link->connections().size());
    }
    if (distant_.empty() || !tries) return;
    trial_.emplace(longest, most);
    use_connections();
  }

  // A distant line loses packets by itself, not only where it is full.
  bool lose_packets() const { return lose_; }

  // What the peer's machine has acknowledged.
  static Transport::Acknowledged acknowledged(const Link& link) {
    Transport::Acknowledged all;
    for (const auto& each : link.connections()) {
      if (!each->is_open()) continue;
      const os::Acknowledged one = os::acknowledged(each->socket());
      all.bytes += one.bytes;
      all.resent += one.resent;
      all.waits |= one.waits || each->has_unsent();
      all.busy = std::max(all.busy, one.busy);
    }
    return all;
  }

  // See Transport::adapt().
  void adapt(TimePoint now) {
    LinkProgress distant = sample();
    share_lines(now);
    if (!trial_) return;
    for (const Link* const link : distant_) {
      const Transport::Acknowledged one = acknowledged(*link);
      distant.acknowledged += one.bytes;
      distant.waits |= one.waits;
    }
    trial_->sample(distant, now);
    use_connections();
  }

 private:
  static std::size_t count(const std::vector<Link*>& links) {
    std::size_t connections = 0;
    for (const Link* const link : links) connections += link->connections().size();
    return connections;
  }

  // Samples all connections; the progress of those to distant peers.
  LinkProgress sample() {
    LinkProgress distant;
    bool is_lossy = false;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      Connection& each = *connections_[i];
      if (!each.is_open()) continue;
      const os::TcpSample sample = os::tcp_sample(each.socket());
      share_.sample(i, sample);
      if (sample.shortest < kDistantRoundTrip) continue;
      is_lossy |= each.is_lossy(sample);
      distant.resent += sample.resent_packets;
      distant.busy += sample.busy;
      distant.limited += sample.limited;
    }
    if (watches_losses_ && !lose_ && is_lossy) use_bbr();
    return distant;
  }
  // Packets that a line loses by itself say nothing of queues.
  void share_lines(TimePoint now) {
    const bool had_limit = share_.limits();
    share_.step(now);
    if (lose_) share_.lift();
    if (!had_limit && !share_.limits()) return;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (connections_[i]->is_open()) os::limit_window(connections_[i]->socket(), share_.window(i));
    }
  }
  void use_connections() {
    for (Link* const link : distant_) link->use(trial_->used());
  }
  // A line that loses packets for one peer does so for others: it may be this host's.
  void use_bbr() {
    lose_ = true;
    if (trial_) {
      trial_->use_all();
      use_connections();
    }
    for (Link* const link : distant_) link->use_bbr();
  }

  const bool watches_losses_;
  std::vector<Connection*> connections_;
  std::vector<Link*> distant_;
  LineShare share_;
  std::optional<ConnectionTrial> trial_;  // none: all connections are used
  bool lose_ = false;
};

}  // namespace qccl::tcp
