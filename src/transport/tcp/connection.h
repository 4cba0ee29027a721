// The connections to a peer. One keeps the order of its frames; several number them, and the receiver puts them in
// order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "os/net/socket.h"
#include "secure/stream.h"
#include "transport/tcp/frame_stream.h"
#include "transport/tcp/loss_watch.h"

namespace qccl::tcp {

class Link;

// One socket, with TLS or without: the queue of frames to send, and the frame being received. It is in use until this
// rank ends it, which then still sends the queued frames and discards incoming ones, or until it is closed.
class Connection {
 public:
  // `token` is its name in the poller.
  Connection(Link& link, std::uint64_t token, secure::Stream stream, SharedBuffers& shared,
             std::size_t send_queue_bytes);

  Link& link() const { return link_; }
  std::uint64_t token() const { return token_; }
  int socket() const { return stream_.get(); }
  const secure::Stream& stream() const { return stream_; }
  bool is_open() const { return stream_.valid(); }
  bool is_ended() const { return ended_; }
  bool in_use() const { return is_open() && !ended_; }

  bool may_send(std::size_t bytes, TrafficClass traffic) const {
    return in_use() && send_failure_.loss.empty() && writer_.has_room(bytes, traffic);
  }
  // See FrameWriter. A failure shows in read(): the peer's frames before it may still be there to read.
  void send(FrameBuffer* frame, std::uint64_t burst, ConstBytes outside) {
    check(writer_.push(stream_, frame, burst, outside));
  }
  // True if anything was sent or sending failed.
  bool flush() { return check(writer_.flush(stream_)); }
  bool has_unsent() const { return !writer_.empty(); }
  bool gathers() const { return writer_.gathers(); }
  // Bytes that wait here or that the peer's machine has yet to acknowledge.
  std::size_t backlog() const { return writer_.queued_bytes() + os::send_backlog(socket()); }

  // Its line loses packets by itself. `sample`: of now.
  bool is_lossy(const os::TcpSample& sample) { return losses_.is_lossy(sample); }
  void use_bbr() { os::set_congestion_control(stream_.socket(), "bbr"); }

  // See FrameReader. The loss is the first failure, of sending or of reading; what has arrived may say more.
  FrameReader::ReadResult read(std::size_t budget, PayloadPlacement* placement, FrameList& frames) {
    auto result = reader_.read(stream_, budget, placement, frames);
    const bool has_first = result.end == Transport::End::by_peer && !send_failure_.loss.empty();
    if (result.loss.empty() || !has_first) return result;
    result.loss = send_failure_.loss;
    result.end = send_failure_.end;
    return result;
  }
  FrameReader& reader() { return reader_; }

  void end() {
    ended_ = true;
    reader_.clear();
  }
  // What TLS still has to say, such as an alert, tells the peer that this is no end of file.
  void close() {
    if (stream_.is_encrypted() && !stream_.inherited()) {
      static_cast<void>(stream_.write_some(std::span<const ConstBytes>{}));
    }
    writer_.clear();
    reader_.clear();
    stream_.reset();
  }

  std::size_t undelivered_bytes = 0;  // in frames that receive() has not handed out
  FrameList early;                    // received frames behind others that have not come
  bool was_ended_by_peer = false;     // in good order: it sends no more here
  bool watched_for_writing = false;

 private:
  bool check(const os::IoResult& sent) {
    if (sent.error != 0) {
      send_failure_.loss = os::describe(sent);
      send_failure_.end = sent.ended_by_peer() ? Transport::End::by_peer : Transport::End::broken;
      writer_.clear();
    }
    return sent.ok() || sent.lost();
  }

  Link& link_;
  const std::uint64_t token_;
  secure::Stream stream_;
  FrameReader reader_;
  FrameWriter writer_;
  FrameReader::ReadResult send_failure_;
  LossWatch losses_;
  bool ended_ = false;
};

// All connections to a peer, and the order of the frames on them.
class Link {
 public:
  Link(WorldRank peer, SharedBuffers& shared) : peer_(peer), shared_(shared) {}

  WorldRank peer() const { return peer_; }
  // While the link is opened.
  Connection& add(std::uint64_t token, secure::Stream stream, std::size_t send_queue_bytes) {
    connections_.push_back(std::make_unique<Connection>(*this, token, std::move(stream), shared_, send_queue_bytes));
    used_ = connections_.size();
    return *connections_.back();
  }
  // After the last add(): takes the memory that send_last() needs.
  void prepare() {
    lasts_.reserve(connections_.size());
    while (is_numbered() && lasts_.size() < connections_.size()) {
      lasts_.push_back(shared_.pool.take(wire::kHeaderBytes));
    }
  }
  const std::vector<std::unique_ptr<Connection>>& connections() const { return connections_; }
  bool is_open() const {
    return std::ranges::any_of(connections_, [](const auto& each) { return each->is_open(); });
  }

  // ---- sending

  // From now on, frames go to so many connections; at first to all.
  void use(std::size_t connections) { used_ = std::min(connections, connections_.size()); }
  // For a line that loses packets by itself.
  void use_bbr() {
    for (const auto& each : connections_) {
      if (each->is_open()) each->use_bbr();
    }
  }
  // The connection for the next frame: the one with the least backlog; null if none takes it now.
  Connection* choose(std::size_t bytes, TrafficClass traffic) const {
    if (!is_numbered()) return connections_.front()->may_send(bytes, traffic) ? connections_.front().get() : nullptr;
    Connection* best = nullptr;
    std::size_t least = SIZE_MAX;
    for (const auto& each : std::span(connections_).first(used_)) {
      if (!each->may_send(bytes, traffic)) continue;
      const std::size_t backlog = each->backlog() / kBacklogStep;
      if (backlog >= least) continue;
      best = each.get();
      least = backlog;
      if (least == 0) break;
    }
    return best;
  }
  // Sends on the frame's connection, as Connection::send.
  void send(FrameBuffer* frame, std::uint64_t burst, ConstBytes outside) {
    if (is_numbered()) wire::set_frame_number(frame->data(), sent_++);
    frame->connection->send(frame, burst, outside);
  }
  // Says on each connection, once, that nothing follows.
  void send_last() {
    for (std::size_t i = 0; i < lasts_.size(); ++i) {
      FrameBuffer* const frame = lasts_[i];
      wire::encode_header({.kind = wire::FrameKind::last}, frame->data());
      frame->bytes = wire::kHeaderBytes;
      frame->traffic = TrafficClass::control;
      const bool may_send = connections_[i]->may_send(frame->bytes, frame->traffic);
      may_send ? connections_[i]->send(frame, 0, {}) : shared_.pool.put_back(frame);
    }
    lasts_.clear();
  }

  // ---- receiving

  // Takes over the frames that came on `from`, and appends to `ordered` all frames whose turn it is. Why the peer is
  // lost; "" if it is not.
  std::string arrange(Connection& from, FrameList frames, FrameList& ordered) {
    while (!frames.empty()) {
      FrameBuffer* const frame = frames.pop_front();
      if (frame->is_last) {
        shared_.pool.put_back(frame);
        if (!is_numbered()) return "sent the end of one of several connections where there is one";
        from.was_ended_by_peer = true;
        continue;
      }
      frame->connection = &from;
      from.undelivered_bytes += frame->bytes;
      (is_numbered() ? from.early : ordered).push_back(frame);
    }
    while (FrameBuffer* const next = take_next()) ordered.push_back(next);
    return "";
  }
  // In frames that receive() has not handed out.
  std::size_t undelivered_bytes() const {
    std::size_t bytes = 0;
    for (const auto& each : connections_) bytes += each->undelivered_bytes;
    return bytes;
  }
  // Drops the frames that are early.
  void drop_early() {
    for (const auto& each : connections_) {
      while (!each->early.empty()) {
        FrameBuffer* const frame = each->early.pop_front();
        each->undelivered_bytes -= frame->bytes;
        shared_.pool.put_back(frame);
      }
    }
  }

 private:
  // Differences in backlog below this do not matter; small frames stay on the first connection.
  static constexpr std::size_t kBacklogStep = 64 * 1024;

  bool is_numbered() const { return connections_.size() > 1; }
  FrameBuffer* take_next() {
    for (const auto& each : connections_) {
      if (each->early.empty() || each->early.front()->number != received_) continue;
      ++received_;
      return each->early.pop_front();
    }
    return nullptr;
  }

  const WorldRank peer_;
  SharedBuffers& shared_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<FrameBuffer*> lasts_;  // the frames that send_last() will send, one a connection
  std::uint32_t sent_ = 0;           // frames, modulo 2^32
  std::uint32_t received_ = 0;       // frames in order, modulo 2^32
  std::size_t used_ = 0;             // of the connections, the first ones
};

inline Connection::Connection(Link& link, std::uint64_t token, secure::Stream stream, SharedBuffers& shared,
                              std::size_t send_queue_bytes)
    : link_(link),
      token_(token),
      stream_(std::move(stream)),
      reader_(link.peer(), shared),
      writer_(shared, send_queue_bytes) {}

}  // namespace qccl::tcp
