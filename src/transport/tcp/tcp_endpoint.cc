#include "transport/tcp/tcp_endpoint.h"

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/distance.h"
#include "base/log.h"
#include "os/net/socket.h"
#include "transport/tcp/connection_table.h"
#include "transport/tcp/remote_lines.h"

namespace qccl {
namespace tcp {
namespace {

// The sending side: bursts of frames, of which the small ones are sent together.
class TcpSender final : private Reservation::Owner {
 public:
  TcpSender(SharedBuffers& shared, const ConnectionTable& connections) : shared_(shared), connections_(connections) {}

  // See Transport.
  Reservation reserve(Link& link, std::size_t max_bytes, TrafficClass traffic) {
    Connection* const connection = link.choose(max_bytes, traffic);
    if (connection == nullptr) return {};
    FrameBuffer* const frame = shared_.pool.take(max_bytes);
    frame->connection = connection;
    frame->traffic = traffic;
    return {*this, link.peer(), traffic, {frame->data(), max_bytes}, frame};
  }
  void commit(Reservation&& room, std::size_t bytes, ConstBytes payload) {
    FrameBuffer* const frame = buffer_of(room);
    if (!frame->connection->is_open()) {
      room = {};
      return;
    }
    room.forget();
    frame->bytes = static_cast<std::uint32_t>(bytes + payload.size());
    // All peers share the link: a small frame, such as a grant, that left after a long one would wait for it there.
    if (frame->bytes >= kLongFrameBytes && !flushed()) {
      for (Connection* const each : connections_.open_connections()) {
        if (each->gathers()) each->flush();
      }
    }
    frame->connection->link().send(frame, burst_, payload);
  }

  // Ends the burst.
  void end_burst() { ++burst_; }
  // Sends from the queues; true if anything moved.
  bool flush() {
    bool moved = false;
    if (flushed()) return moved;
    for (Connection* const each : connections_.open_connections()) moved |= each->has_unsent() && each->flush();
    return moved;
  }
  bool flushed() const { return shared_.waiting_writers == 0; }

 private:
  // Before a frame of this size, gathered frames to other peers are sent first.
  static constexpr std::size_t kLongFrameBytes = 16 * 1024;

  static FrameBuffer* buffer_of(const Reservation& room) { return static_cast<FrameBuffer*>(room.slot()); }
  void give_back(const Reservation& room) override { shared_.pool.put_back(buffer_of(room)); }

  SharedBuffers& shared_;
  const ConnectionTable& connections_;
  std::uint64_t burst_ = 1;  // number of the current burst: commits between two progress() calls
};

// The receiving side: reads the sockets, queues complete frames, and reports a lost peer after its frames.
class TcpReceiver {
 public:
  // A connection with `limit_bytes` of frames that receive() has not handed out is not read.
  TcpReceiver(SharedBuffers& shared, ConnectionTable& connections, std::size_t limit_bytes)
      : shared_(shared), connections_(connections), limit_bytes_(limit_bytes) {}

  // Call this once the connections are open: reserves memory, so that no loss is missed for want of it.
  void prepare() {
    const auto is_encrypted = [](const Connection* each) { return each->stream().is_encrypted(); };
    encrypts_ = std::ranges::any_of(connections_.open_connections(), is_encrypted);
    losses_.reserve(2 * connections_.open_connections().size());
  }

  // Reads the sockets, at most some of their data; true if any had data or was lost.
  bool read() {
    const auto& open = connections_.open_connections();
    const std::size_t open_before = open.size();
    std::size_t bytes = 0;
    if (os::Poller* const poller = connections_.own_poller()) {
      for (const auto& event : poller->wait(Nanoseconds::zero())) {
        if (event.readable && bytes < kReadBytesPerCall) bytes += read_from(connections_.of(event));
      }
      while (Connection* const connection = bytes < kReadBytesPerCall ? with_hidden_input() : nullptr) {
        bytes += read_from(*connection);
      }
    } else {
      // A loss closes its connection, so that the next one may have to wait for the next call.
      for (std::size_t left = open_before; left > 0 && !open.empty() && bytes < kReadBytesPerCall; --left) {
        if (next_to_read_ >= open.size()) next_to_read_ = 0;
        bytes += read_from(*open[next_to_read_++]);
      }
    }
    return bytes > 0 || open.size() != open_before;
  }
  // True if receive() or next_loss() may have something.
  bool has_news() const { return !undelivered_.empty() || !losses_.empty() || with_hidden_input() != nullptr; }

  // See Transport.
  std::optional<ReceivedFrame> receive() {
    while (!undelivered_.empty()) {
      FrameBuffer* const frame = undelivered_.pop_front();
      Connection& connection = *frame->connection;
      connection.undelivered_bytes -= frame->bytes;
      if (connection.is_ended()) {
        shared_.pool.put_back(frame);
        continue;
      }
      const ConstBytes bytes(frame->data(), frame->placed == nullptr ? frame->bytes : kFrameHeaderBytes);
      return ReceivedFrame{connection.link().peer(), bytes, frame, {frame->placed, frame->bytes - bytes.size()}};
    }
    return std::nullopt;
  }

  void set_placement(PayloadPlacement* placement) { placement_ = placement; }
  void withdraw() {
    bool has_all = true;
    for (Connection* const each : connections_.open_connections()) {
      has_all &= each->reader().withdraw() && keep_withdrawn(each->early);
    }
    has_all &= keep_withdrawn(undelivered_);
    if (!has_all) throw std::bad_alloc();
  }

  std::optional<Transport::PeerLoss> next_loss() {
    const auto loss =
        std::ranges::find_if(losses_, [](const Loss& each) { return each.link->undelivered_bytes() == 0; });
    if (loss == losses_.end()) return std::nullopt;
    Transport::PeerLoss taken{loss->link->peer(), std::move(loss->cause), loss->end};
    losses_.erase(loss);
    return taken;
  }
  // Its loss is not reported.
  void forget_loss(const Link& link) {
    std::erase_if(losses_, [&](const Loss& loss) { return loss.link == &link; });
  }

 private:
  // Limits for one read(), so that the engine decodes while data is still in cache and no peer starves another.
  static constexpr std::size_t kReadBytesPerPeer = kMaxFrameBytes;
  static constexpr std::size_t kReadBytesPerCall = 1024 * 1024;

  // A connection that has decrypted input, and room for its frames; null if there is none.
  Connection* with_hidden_input() const {
    if (!encrypts_) return nullptr;
    const auto& open = connections_.open_connections();
    const auto found = std::ranges::find_if(open, [this](const Connection* each) {
      return each->stream().has_input() && each->in_use() && each->undelivered_bytes < limit_bytes_;
    });
    return found == open.end() ? nullptr : *found;
  }

  std::size_t read_from(Connection& connection) {
    if (!connection.in_use() || connection.undelivered_bytes >= limit_bytes_) return 0;
    auto result = read_frames(connection);
    if (!result.loss.empty()) note_end(connection, std::move(result));
    return result.bytes;
  }

  FrameReader::ReadResult read_frames(Connection& connection) {
    FrameList frames;
    auto result = connection.read(kReadBytesPerPeer, placement_, frames);
    std::string misuse = connection.link().arrange(connection, frames, undelivered_);
    if (!misuse.empty()) {
      result.loss = std::move(misuse);
      result.end = Transport::End::faulty;
    }
    return result;
  }

  // A peer that leaves ends its connections one after the other: it is lost with the last. Any other end of one of them
  // loses the peer, after what has arrived on the others. A faulty peer can still be told.
  void note_end(Connection& connection, FrameReader::ReadResult end) {
    Link& link = connection.link();
    if (end.end == Transport::End::faulty) {
      for (const auto& each : link.connections()) each->reader().stop();
      link.drop_early();
      losses_.push_back({&link, std::move(end.loss), end.end});
      return;
    }
    connections_.close(connection);
    if (connection.was_ended_by_peer && link.is_open()) return;
    for (const auto& each : link.connections()) {
      while (each->is_open()) {
        const auto result = read_frames(*each);
        if (result.bytes == 0 || !result.loss.empty()) connections_.close(*each);
      }
    }
    link.drop_early();
    losses_.push_back({&link, std::move(end.loss), end.end});
  }

  bool keep_withdrawn(FrameList& frames) {
    bool has_all = true;
    FrameList all = std::exchange(frames, {});
    while (!all.empty()) {
      FrameBuffer* const frame = all.pop_front();
      try {
        frames.push_back(frame->placed != nullptr ? with_own_payload(frame, shared_.pool) : frame);
      } catch (const std::bad_alloc&) {
        drop_withdrawn(frame);
        has_all = false;
      }
    }
    return has_all;
  }

  // There is no memory for the frame, and its connection's frames end with those before it.
  void drop_withdrawn(FrameBuffer* frame) {
    frame->connection->undelivered_bytes -= frame->bytes;
    frame->connection->reader().stop();
    shared_.pool.put_back(frame);
  }

  SharedBuffers& shared_;
  ConnectionTable& connections_;
  const std::size_t limit_bytes_;
  bool encrypts_ = false;  // a connection may have input that its socket does not show
  PayloadPlacement* placement_ = nullptr;
  FrameList undelivered_;
  struct Loss {
    Link* link;
    std::string cause;
    Transport::End end;
  };
  std::vector<Loss> losses_;
  std::size_t next_to_read_ = 0;  // index of the open connection where a read() that reached its limit stopped
};

}  // namespace
}  // namespace tcp

namespace {

bool is_distant(const os::Fd& socket) { return os::shortest_round_trip(socket.get()) >= kDistantRoundTrip; }

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(os::Poller& poller, const TcpOptions& options)
      : Endpoint(poller, options.token_space),
        options_(options),
        connections_(poller, token(0), shared_),
        sender_(shared_, connections_),
        receiver_(shared_, connections_, options.receive_queue_bytes) {}
  ~TcpEndpoint() override { TcpEndpoint::close(); }

  Status open(tcp::SocketsByRank sockets) {
    std::vector<WorldRank> remote;
    for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
      if (sockets[rank].empty()) continue;
      const bool is_far = !is_local(WorldRank(rank)) && is_distant(sockets[rank].front().socket());
      if (!is_local(WorldRank(rank))) remote.push_back(WorldRank(rank));
      const std::string control = congestion_control(is_local(WorldRank(rank)), is_far);
      for (const secure::Stream& stream : sockets[rank]) {
        QCCL_TRY(os::set_no_delay(stream.socket()));
        if (!control.empty()) os::set_congestion_control(stream.socket(), control);
      }
    }
    QCCL_TRY(connections_.open(std::move(sockets), options_.send_queue_bytes, options_.max_directly_read));
    std::vector<tcp::Link*> links;
    for (const WorldRank peer : remote) links.push_back(&connections_.at(peer));
    lines_.emplace(links, !options_.uses_all_connections, watches_losses_);
    receiver_.prepare();
    return {};
  }

  Reservation reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) override {
    return sender_.reserve(connections_.at(peer), max_bytes, traffic);
  }
  void commit(Reservation&& room, std::size_t bytes, ConstBytes payload) override {
    sender_.commit(std::move(room), bytes, payload);
  }
  std::optional<ReceivedFrame> receive() override { return receiver_.receive(); }
  void release(const ReceivedFrame& frame) override {
    shared_.pool.put_back(static_cast<tcp::FrameBuffer*>(frame.slot));
  }
  void set_placement(PayloadPlacement* placement) override { receiver_.set_placement(placement); }
  void withdraw() override { receiver_.withdraw(); }
  bool progress() override {
    sender_.end_burst();
    bool moved = sender_.flush();
    moved |= connections_.close_ended();
    moved |= receiver_.read();
    return moved;
  }
  std::optional<PeerLoss> next_loss() override { return receiver_.next_loss(); }
  void disconnect(WorldRank peer) override {
    receiver_.forget_loss(connections_.at(peer));
    connections_.end(connections_.at(peer));
  }

  bool arm() override {
    // What moves here may have made the room that the caller waits for, and no event would say so.
    if (receiver_.has_news() || sender_.flush()) return false;
    return connections_.watch_unsent();
  }
  void disarm() override {}
  void ready(const os::Poller::Ready&) override {}  // progress() checks every socket that may be ready

  Nanoseconds round_trip(WorldRank peer) const override {
    const tcp::Link* const link = connections_.find(peer);
    const bool is_known = link != nullptr && link->connections().front()->is_open() && !is_local(peer);
    return is_known ? os::shortest_round_trip(link->connections().front()->socket()) : Nanoseconds{};
  }
  Acknowledged acknowledged(WorldRank peer) const override {
    const tcp::Link* const link = connections_.find(peer);
    if (link == nullptr) return {};
    Acknowledged all = tcp::RemoteLines::acknowledged(*link);
    all.loses = lines_->lose_packets();
    return all;
  }
  void adapt(TimePoint now) override { lines_->adapt(now); }
  bool is_local(WorldRank peer) const override {
    return peer.index() < options_.on_this_host.size() && options_.on_this_host[peer.index()];
  }
  const char* kind(WorldRank) const override { return "tcp"; }
  int connections(WorldRank peer) const override {
    const tcp::Link* const link = connections_.find(peer);
    return link == nullptr ? 1 : static_cast<int>(link->connections().size());
  }
  bool flushed() const override { return sender_.flushed(); }
  void set_close_patience(Nanoseconds patience) override { close_patience_ = patience; }
  void close() override { connections_.close_all(close_patience_); }

 private:
  // What fits a peer's connections; empty: the system's. A choice that the system refuses changes nothing.
  std::string congestion_control(bool is_on_this_host, bool is_far) const {
    if (is_on_this_host) return "reno";  // in every kernel, permitted to every user
    if (!is_far) return "";
    return watches_losses_ ? "cubic" : options_.distant_congestion_control;
  }

  const TcpOptions options_;
  const bool watches_losses_ = options_.distant_congestion_control == "auto";
  Nanoseconds close_patience_ = kClosePatience;
  tcp::SharedBuffers shared_;
  tcp::ConnectionTable connections_;
  tcp::TcpSender sender_;
  tcp::TcpReceiver receiver_;
  std::optional<tcp::RemoteLines> lines_;  // since open()
};

}  // namespace

Result<std::unique_ptr<Endpoint>> make_tcp_endpoint(os::Poller& poller, const TcpOptions& options,
                                                    std::vector<std::vector<secure::Stream>> sockets_by_rank) {
  auto endpoint = std::make_unique<TcpEndpoint>(poller, options);
  QCCL_TRY(endpoint->open(std::move(sockets_by_rank)));
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace qccl
