// The connections of an endpoint: which are open, which sockets are ready, and how links end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "os/fd.h"
#include "os/net/poller.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "transport/tcp/connection.h"

namespace qccl::tcp {

// By rank, the sockets of the connections to it.
using SocketsByRank = std::vector<std::vector<secure::Stream>>;

class ConnectionTable {
 public:
  // The sockets' tokens in `poller` count from `first_token`.
  ConnectionTable(os::Poller& poller, std::uint64_t first_token, SharedBuffers& shared)
      : poller_(poller), first_token_(first_token), shared_(shared) {}

  // Opens a connection for every socket. own_poller() watches them if they are more than `max_directly_read`.
  Status open(SocketsByRank sockets, std::size_t send_queue_bytes, int max_directly_read) {
    links_.resize(sockets.size());
    for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
      if (sockets[rank].empty()) continue;
      links_[rank] = std::make_unique<Link>(WorldRank(rank), shared_);
      for (secure::Stream& socket : sockets[rank]) {
        connections_.push_back(
            &links_[rank]->add(first_token_ + connections_.size(), std::move(socket), send_queue_bytes));
      }
      links_[rank]->prepare();
    }
    open_ = connections_;
    if (static_cast<int>(open_.size()) > max_directly_read) {
      QCCL_ASSIGN(own_poller_, os::Poller::create());
      QCCL_TRY(poller_.watch(own_poller_->descriptor(), first_token_ + connections_.size()));
    }
    for (const Connection* each : open_) QCCL_TRY(watcher().watch(each->socket(), each->token()));
    return {};
  }

  Link& at(WorldRank peer) { return *links_[peer.index()]; }
  // Null if there is none.
  Link* find(WorldRank peer) const { return links_[peer.index()].get(); }
  // All that are not closed.
  const std::vector<Connection*>& open_connections() const { return open_; }
  // Knows which sockets are ready; null if the caller should read each socket instead.
  os::Poller* own_poller() { return own_poller_ ? &*own_poller_ : nullptr; }
  Connection& of(const os::Poller::Ready& event) { return *connections_[event.token - first_token_]; }

  // From now on the poller reports sockets that can take unsent frames. False if it refuses.
  bool watch_unsent() {
    for (Connection* const each : open_) {
      const bool wants_to_write = each->has_unsent();
      if (each->is_ended() || wants_to_write == each->watched_for_writing) continue;
      if (!watcher().watch(each->socket(), each->token(), wants_to_write).ok()) return false;
      each->watched_for_writing = wants_to_write;
    }
    return true;
  }

  // Ends the link: close_ended() closes its connections once its peer has everything.
  void end(Link& link) {
    link.send_last();
    for (const auto& each : link.connections()) {
      const bool was_in_use = each->in_use();
      each->end();
      if (!was_in_use) continue;
      watcher().forget(each->socket());
      ended_.push_back(each.get());
    }
    link.drop_early();
  }
  // Like close_all(), but without waiting: see wait_for_acknowledgements(). No event says when more can be done, but
  // the engine calls this several times a second. True if any connection was closed.
  bool close_ended() {
    return std::erase_if(ended_, [this](Connection* connection) {
             if (!connection->has_unsent()) os::end_sending(connection->socket());
             const std::size_t left = os::unacknowledged_bytes(connection->socket(), shared_.staging);
             if (left > 0 || connection->has_unsent()) return false;
             close(*connection);
             return true;
           }) > 0;
  }
  void close(Link& link) {
    for (const auto& each : link.connections()) {
      if (each->is_open()) close(*each);
    }
  }
  void close(Connection& connection) {
    watcher().forget(connection.socket());
    connection.close();
    std::erase(open_, &connection);
  }
  // Sends what the sockets take and closes all, once the peers' machines have acknowledged everything or nothing for
  // `patience`; does not touch them in a forked child.
  void close_all(Nanoseconds patience) {
    if (!open_.empty() && !open_.front()->stream().inherited()) {
      for (const auto& link : links_) {
        if (link != nullptr) link->send_last();
      }
      for (Connection* each : open_) each->flush();
      wait_for_acknowledgements(patience);
    }
    while (!open_.empty()) close(*open_.back());
    ended_.clear();
  }

 private:
  static constexpr Nanoseconds kAcknowledgementInterval = std::chrono::microseconds(100);

  // Peers may still send for a while. Data that arrives at a closed socket resets the connection, and a peer with a
  // full socket buffer would lose the end of what this rank has sent.
  void wait_for_acknowledgements(Nanoseconds patience) {
    for (const Connection* each : open_) os::end_sending(each->socket());
    const SteadyClock clock;
    TimePoint last_moved = clock.now();
    std::size_t least = SIZE_MAX;
    while (true) {
      std::size_t left = 0;
      for (const Connection* each : open_) left += os::unacknowledged_bytes(each->socket(), shared_.staging);
      if (left == 0) return;
      const TimePoint now = clock.now();
      if (left < least) last_moved = now;
      least = std::min(left, least);
      if (now - last_moved > patience) return;
      os::pause(kAcknowledgementInterval);
    }
  }

  os::Poller& watcher() { return own_poller_ ? *own_poller_ : poller_; }

  os::Poller& poller_;
  const std::uint64_t first_token_;
  SharedBuffers& shared_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank; null where there is none
  std::vector<Connection*> connections_;      // by token
  std::vector<Connection*> open_;
  std::vector<Connection*> ended_;        // those of open_ that this rank has ended
  std::optional<os::Poller> own_poller_;  // watched by poller_
};

}  // namespace qccl::tcp
