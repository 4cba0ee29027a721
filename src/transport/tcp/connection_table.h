// The connections of an endpoint: which are open, which sockets are ready, and how connections end.
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
#include "transport/tcp/frame_stream.h"

namespace qccl::tcp {

// A connection to a peer: its socket, the queue of frames to send, and the frame being received. It is in use until
// this rank ends it, which then still sends the queued frames and discards incoming ones, or until it is closed.
class Connection {
 public:
  Connection(WorldRank peer, os::Fd socket, SharedBuffers& shared, std::size_t send_queue_bytes)
      : peer_(peer), socket_(std::move(socket)), reader_(peer, shared), writer_(shared, send_queue_bytes) {}

  WorldRank peer() const { return peer_; }
  int socket() const { return socket_.get(); }
  // Made by an ancestor of this process.
  bool is_inherited() const { return socket_.inherited(); }
  bool is_open() const { return socket_.valid(); }
  bool is_ended() const { return ended_; }
  bool in_use() const { return is_open() && !ended_; }

  bool may_send(std::size_t bytes, TrafficClass traffic) const {
    return in_use() && send_failure_.empty() && writer_.has_room(bytes, traffic);
  }
  // See FrameWriter. A failure shows in read(): the peer's frames before it may still be there to read.
  void send(FrameBuffer* frame, std::uint64_t burst, ConstBytes outside) {
    check(writer_.push(socket(), frame, burst, outside));
  }
  // True if anything was sent or sending failed.
  bool flush() { return check(writer_.flush(socket())); }
  bool has_unsent() const { return !writer_.empty(); }
  bool gathers() const { return writer_.gathers(); }

  // See FrameReader. The loss is the first failure, of sending or of reading.
  FrameReader::ReadResult read(std::size_t budget, PayloadPlacement* placement, FrameList& frames) {
    auto result = reader_.read(socket(), budget, placement, frames);
    if (!result.loss.empty() && !send_failure_.empty()) result.loss = std::move(send_failure_);
    return result;
  }
  bool withdraw() { return reader_.withdraw(); }
  void stop_reading() { reader_.stop(); }

  void end() {
    ended_ = true;
    reader_.clear();
  }
  void close() {
    writer_.clear();
    reader_.clear();
    socket_.reset();
  }

  std::size_t undelivered_bytes = 0;  // in frames that receive() has not handed out
  bool watched_for_writing = false;

 private:
  bool check(const os::IoResult& sent) {
    if (sent.error != 0) {
      send_failure_ = os::describe(sent);
      writer_.clear();
    }
    return sent.ok() || sent.lost();
  }

  const WorldRank peer_;
  os::Fd socket_;
  FrameReader reader_;
  FrameWriter writer_;
  std::string send_failure_;
  bool ended_ = false;
};

class ConnectionTable {
 public:
  // The sockets' tokens in `poller` are `first_token` + rank.
  ConnectionTable(os::Poller& poller, std::uint64_t first_token, SharedBuffers& shared)
      : poller_(poller), first_token_(first_token), shared_(shared) {}

  // Opens a connection for every valid socket. own_poller() watches them if they are more than `max_directly_read`.
  Status open(std::vector<os::Fd> sockets_by_rank, std::size_t send_queue_bytes, int max_directly_read) {
    connections_.resize(sockets_by_rank.size());
    for (std::size_t rank = 0; rank < sockets_by_rank.size(); ++rank) {
      os::Fd& socket = sockets_by_rank[rank];
      if (!socket.valid()) continue;
      connections_[rank] = std::make_unique<Connection>(WorldRank(rank), std::move(socket), shared_, send_queue_bytes);
      open_.push_back(connections_[rank].get());
    }
    if (static_cast<int>(open_.size()) > max_directly_read) {
      QCCL_ASSIGN(own_poller_, os::Poller::create());
      QCCL_TRY(poller_.watch(own_poller_->descriptor(), first_token_ + connections_.size()));
    }
    for (const Connection* each : open_) QCCL_TRY(watcher().watch(each->socket(), token(*each)));
    return {};
  }

  Connection& at(WorldRank peer) { return *connections_[peer.index()]; }
  // Null if there is none, or it is closed.
  const Connection* find(WorldRank peer) const {
    const Connection* const connection = connections_[peer.index()].get();
    return connection != nullptr && connection->is_open() ? connection : nullptr;
  }
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
      if (!watcher().watch(each->socket(), token(*each), wants_to_write).ok()) return false;
      each->watched_for_writing = wants_to_write;
    }
    return true;
  }

  // Ends the connection: close_ended() closes it once its peer has everything.
  void end(Connection& connection) {
    const bool was_in_use = connection.in_use();
    connection.end();
    if (!was_in_use) return;
    watcher().forget(connection.socket());
    ended_.push_back(&connection);
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
  void close(Connection& connection) {
    watcher().forget(connection.socket());
    connection.close();
    std::erase(open_, &connection);
  }
  // Sends what the sockets take and closes all, once the peers' machines have acknowledged everything or nothing for
  // `patience`; does not touch them in a forked child.
  void close_all(Nanoseconds patience) {
    if (!open_.empty() && !open_.front()->is_inherited()) {
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
  std::uint64_t token(const Connection& connection) const { return first_token_ + connection.peer().index(); }

  os::Poller& poller_;
  const std::uint64_t first_token_;
  SharedBuffers& shared_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by rank; null where there is none
  std::vector<Connection*> open_;
  std::vector<Connection*> ended_;        // those of open_ that this rank has ended
  std::optional<os::Poller> own_poller_;  // watched by poller_
};

}  // namespace qccl::tcp
