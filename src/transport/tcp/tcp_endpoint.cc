#include "transport/tcp/tcp_endpoint.h"

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "transport/tcp/frame_buffer_pool.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/frame_writer.h"

namespace qccl {
namespace {

using tcp::FrameBuffer;
using tcp::FrameBufferPool;
using tcp::FrameList;
using tcp::FrameReader;
using tcp::FrameWriter;

// Limits for one progress() call, so that the engine decodes while data is still in cache and no peer starves another.
constexpr std::size_t kReadBytesPerPeer = kMaxFrameBytes;
constexpr std::size_t kReadBytesPerCall = 1024 * 1024;

// Before a frame of this size, gathered frames to other peers are sent first.
constexpr std::size_t kLongFrameBytes = 16 * 1024;

// How long close() waits for a peer's machine that acknowledges nothing, and how often it checks.
constexpr Nanoseconds kClosePatience = std::chrono::seconds(2);
constexpr Nanoseconds kCloseLook = std::chrono::microseconds(100);

struct Connection {
  Connection(WorldRank peer, os::Fd socket, FrameBufferPool& pool, Bytes staging, std::size_t send_queue_bytes)
      : fd(std::move(socket)), reader(peer, pool, staging), writer(pool, send_queue_bytes) {}

  bool open() const { return fd.valid(); }
  bool in_use() const { return open() && !ending; }

  os::Fd fd;
  FrameReader reader;
  FrameWriter writer;
  std::size_t undelivered_bytes = 0;  // in frames that receive() has not handed out
  bool watched_for_writing = false;
  bool ending = false;  // disconnected by this rank: queued frames still go out, incoming ones are discarded
  bool loss_reported = false;
  std::string send_failure;  // sending failed: first read what is left, then report the loss
  std::string loss;          // why the connection was closed, if it was
};

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(os::Poller& poller, const TcpOptions& options)
      : Endpoint(poller, options.token_space), options_(options) {}
  ~TcpEndpoint() override { TcpEndpoint::close(); }

  Status start(std::vector<os::Fd> sockets_by_rank);

  Bytes reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) override;
  void commit(std::size_t actual_bytes) override;
  bool commit_gathered(std::size_t head_bytes, ConstBytes payload) override;
  std::optional<ReceivedFrame> receive() override;
  void release(const ReceivedFrame& frame) override { pool_.give_back(static_cast<FrameBuffer*>(frame.slot)); }
  void set_placement(PayloadPlacement* placement) override { placement_ = placement; }
  void withdraw() override;
  bool progress() override;
  std::optional<PeerLoss> next_loss() override;
  void disconnect(WorldRank peer) override;
  bool arm() override;
  void disarm() override {}
  void ready(const os::Poller::Ready&) override {}  // progress() checks every socket that may be ready
  bool is_local(WorldRank peer) const override {
    return peer.index() < options_.on_this_host.size() && options_.on_this_host[peer.index()];
  }
  const char* kind(WorldRank) const override { return "tcp"; }
  bool flushed() const override { return unsent_ == 0; }
  void close() override;

 private:
  Connection& at(WorldRank peer) { return *connections_[peer.index()]; }
  os::Poller& watcher() { return own_poller_ ? *own_poller_ : poller(); }
  void send(FrameBuffer* frame, ConstBytes outside);
  void flush_gathered();
  bool flush_queues();
  void after_send(WorldRank peer, const os::IoResult& io, bool was_empty);
  bool read_directly();
  bool read_ready();
  std::size_t read_from(WorldRank peer);
  bool keep_withdrawn(FrameBuffer* frame);
  void lose(WorldRank peer, std::string cause);
  bool go_on_ending();
  void drop(WorldRank peer);
  void wait_for_acknowledgements();

  TcpOptions options_;
  FrameBufferPool pool_;
  std::vector<std::byte> staging_ = std::vector<std::byte>(tcp::kStagingBytes);
  std::vector<std::unique_ptr<Connection>> connections_;  // by rank; null where there is none
  std::vector<WorldRank> open_;                           // ranks whose connection is open
  std::optional<os::Poller> own_poller_;                  // with several peers: watches them; watched by poller()
  PayloadPlacement* placement_ = nullptr;
  FrameList undelivered_;
  FrameBuffer* reserved_ = nullptr;
  std::uint64_t burst_ = 1;  // number of the current burst: commits between two progress() calls
  std::size_t unsent_ = 0;   // connections whose send queue is not empty
  std::size_t unreported_losses_ = 0;
  std::vector<WorldRank> ending_;  // disconnected ranks still in open_
  std::size_t next_to_read_ = 0;   // index in open_ where a call that reached its limit stopped
};

Status TcpEndpoint::start(std::vector<os::Fd> sockets_by_rank) {
  connections_.resize(sockets_by_rank.size());
  for (std::size_t rank = 0; rank < sockets_by_rank.size(); ++rank) {
    if (!sockets_by_rank[rank].valid()) continue;
    QCCL_TRY(os::set_no_delay(sockets_by_rank[rank]));
    if (is_local(WorldRank(rank))) os::set_loopback_congestion_control(sockets_by_rank[rank]);
    connections_[rank] = std::make_unique<Connection>(WorldRank(rank), std::move(sockets_by_rank[rank]), pool_,
                                                      staging_, options_.send_queue_bytes);
    open_.emplace_back(rank);
  }
  if (static_cast<int>(open_.size()) > options_.max_directly_read) {
    auto made = os::Poller::create();
    if (!made) return made.failure();
    own_poller_ = std::move(*made);
    QCCL_TRY(poller().watch(own_poller_->descriptor(), token(connections_.size())));
  }
  for (const WorldRank peer : open_) QCCL_TRY(watcher().watch(at(peer).fd.get(), token(peer.index())));
  return {};
}

Bytes TcpEndpoint::reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) {
  QCCL_CHECK(reserved_ == nullptr);
  Connection& connection = at(peer);
  if (!connection.in_use() || !connection.send_failure.empty() || !connection.writer.has_room(max_bytes, traffic))
    return {};
  reserved_ = pool_.take(max_bytes);
  reserved_->peer = peer;
  reserved_->traffic = traffic;
  return {reserved_->data(), max_bytes};
}

void TcpEndpoint::commit(std::size_t actual_bytes) {
  FrameBuffer* const frame = std::exchange(reserved_, nullptr);
  const WorldRank peer = frame->peer;
  Connection& connection = at(peer);
  if (actual_bytes == 0 || !connection.open()) return pool_.give_back(frame);
  frame->bytes = static_cast<std::uint32_t>(actual_bytes);
  send(frame, {});
}

bool TcpEndpoint::commit_gathered(std::size_t head_bytes, ConstBytes payload) {
  FrameBuffer* const frame = std::exchange(reserved_, nullptr);
  const WorldRank peer = frame->peer;
  Connection& connection = at(peer);
  if (!connection.open()) {
    pool_.give_back(frame);
    return true;
  }
  frame->bytes = static_cast<std::uint32_t>(head_bytes + payload.size());
  send(frame, payload);
  return true;
}

// All peers share the link: a small frame, such as a grant, sent after a long frame would keep its peer waiting for
// that.
void TcpEndpoint::send(FrameBuffer* frame, ConstBytes outside) {
  const WorldRank peer = frame->peer;
  Connection& connection = at(peer);
  if (frame->bytes >= kLongFrameBytes && unsent_ > 0) flush_gathered();
  const bool was_empty = connection.writer.empty();
  after_send(peer, connection.writer.push(connection.fd.get(), frame, burst_, outside), was_empty);
}

// Updates the count of queues and records a failure. Frames that the peer sent before it may still be there to read.
void TcpEndpoint::after_send(WorldRank peer, const os::IoResult& io, bool was_empty) {
  Connection& connection = at(peer);
  if (io.error != 0) {
    connection.send_failure = os::describe(io);
    connection.writer.clear();
  }
  const bool is_empty = connection.writer.empty();
  if (was_empty && !is_empty) ++unsent_;
  if (!was_empty && is_empty) --unsent_;
}

std::optional<ReceivedFrame> TcpEndpoint::receive() {
  FrameBuffer* frame = nullptr;
  while (frame == nullptr) {
    if (undelivered_.empty()) return std::nullopt;
    frame = undelivered_.pop_front();
    Connection& connection = at(frame->peer);
    connection.undelivered_bytes -= frame->bytes;
    if (connection.ending) pool_.give_back(std::exchange(frame, nullptr));
  }
  if (frame->placed == nullptr) return ReceivedFrame{frame->peer, ConstBytes(frame->data(), frame->bytes), frame};
  return ReceivedFrame{frame->peer, ConstBytes(frame->data(), kFrameHeaderBytes), frame,
                       ConstBytes(frame->placed, frame->bytes - kFrameHeaderBytes)};
}

void TcpEndpoint::withdraw() {
  bool has_all = true;
  for (const WorldRank peer : open_) has_all &= at(peer).reader.withdraw();
  FrameList frames = std::exchange(undelivered_, FrameList{});
  while (!frames.empty()) has_all &= keep_withdrawn(frames.pop_front());
  if (!has_all) throw std::bad_alloc();
}

// False: there is no memory for the frame, and its peer's frames end with those before it.
bool TcpEndpoint::keep_withdrawn(FrameBuffer* frame) {
  try {
    undelivered_.push_back(frame->placed != nullptr ? FrameReader::gathered(frame, pool_) : frame);
    return true;
  } catch (const std::bad_alloc&) {
    Connection& connection = at(frame->peer);
    connection.undelivered_bytes -= frame->bytes;
    connection.reader.lose_track();
    pool_.give_back(frame);
    return false;
  }
}

bool TcpEndpoint::progress() {
  ++burst_;
  bool moved = unsent_ > 0 && flush_queues();
  if (!ending_.empty()) moved |= go_on_ending();
  moved |= own_poller_ ? read_ready() : read_directly();
  return moved;
}

void TcpEndpoint::flush_gathered() {
  for (const WorldRank peer : open_) {
    Connection& connection = at(peer);
    if (connection.writer.gathers()) after_send(peer, connection.writer.flush(connection.fd.get()), false);
  }
}

bool TcpEndpoint::flush_queues() {
  bool moved = false;
  for (const WorldRank peer : open_) {
    Connection& connection = at(peer);
    if (connection.writer.empty()) continue;
    const auto io = connection.writer.flush(connection.fd.get());
    after_send(peer, io, false);
    moved |= io.ok() || io.lost();
  }
  return moved;
}

bool TcpEndpoint::read_directly() {
  std::size_t bytes = 0;
  bool lost = false;
  // A loss removes its rank from open_, so that the next rank may have to wait for the next call.
  for (std::size_t left = open_.size(); left > 0 && !open_.empty() && bytes < kReadBytesPerCall; --left) {
    if (next_to_read_ >= open_.size()) next_to_read_ = 0;
    const std::size_t before = open_.size();
    bytes += read_from(open_[next_to_read_++]);
    lost |= open_.size() != before;
  }
  return bytes > 0 || lost;
}

bool TcpEndpoint::read_ready() {
  std::size_t bytes = 0;
  const std::size_t open_before = open_.size();
  for (const auto& event : own_poller_->wait(Nanoseconds::zero())) {
    if (event.readable && bytes < kReadBytesPerCall) bytes += read_from(WorldRank(index_of(event.token)));
  }
  return bytes > 0 || open_.size() != open_before;
}

std::size_t TcpEndpoint::read_from(WorldRank peer) {
  Connection& connection = at(peer);
  if (!connection.in_use() || connection.undelivered_bytes >= options_.receive_queue_bytes) return 0;
  FrameList frames;
  auto outcome = connection.reader.read(connection.fd.get(), kReadBytesPerPeer, placement_, frames);
  while (!frames.empty()) {
    FrameBuffer* const frame = frames.pop_front();
    frame->peer = peer;
    connection.undelivered_bytes += frame->bytes;
    undelivered_.push_back(frame);
  }
  if (!outcome.loss.empty()) {
    lose(peer, connection.send_failure.empty() ? std::move(outcome.loss) : std::move(connection.send_failure));
  }
  return outcome.bytes;
}

void TcpEndpoint::lose(WorldRank peer, std::string cause) {
  at(peer).loss = std::move(cause);
  ++unreported_losses_;
  drop(peer);
}

void TcpEndpoint::drop(WorldRank peer) {
  Connection& connection = at(peer);
  if (!connection.writer.empty()) --unsent_;
  connection.writer.clear();
  connection.reader.clear();
  watcher().forget(connection.fd.get());
  connection.fd.reset();
  std::erase(open_, peer);
}

void TcpEndpoint::disconnect(WorldRank peer) {
  Connection& connection = at(peer);
  if (!connection.loss.empty() && !std::exchange(connection.loss_reported, true)) --unreported_losses_;
  if (std::exchange(connection.ending, true) || !connection.open()) return;
  connection.reader.clear();
  watcher().forget(connection.fd.get());
  ending_.push_back(peer);
}

// Like close(), but without waiting: see wait_for_acknowledgements(). No event says when more can be done, but the
// engine calls this several times a second.
bool TcpEndpoint::go_on_ending() {
  return std::erase_if(ending_, [this](WorldRank peer) {
           Connection& connection = at(peer);
           if (connection.writer.empty()) os::end_sending(connection.fd.get());
           const std::size_t left = os::unacknowledged_bytes(connection.fd.get(), staging_);
           const bool has_ended = left == 0 && connection.writer.empty();
           if (has_ended) drop(peer);
           return has_ended;
         }) > 0;
}

// A peer's last frames come before the report of its loss.
std::optional<Transport::PeerLoss> TcpEndpoint::next_loss() {
  if (unreported_losses_ == 0) return std::nullopt;
  for (std::size_t rank = 0; rank < connections_.size(); ++rank) {
    Connection* const connection = connections_[rank].get();
    if (connection == nullptr || connection->loss.empty() || connection->loss_reported) continue;
    if (connection->undelivered_bytes > 0) continue;
    connection->loss_reported = true;
    --unreported_losses_;
    return PeerLoss{WorldRank(rank), connection->loss};
  }
  return std::nullopt;
}

bool TcpEndpoint::arm() {
  if (!undelivered_.empty() || unreported_losses_ > 0) return false;
  if (unsent_ > 0) flush_queues();
  for (const WorldRank peer : open_) {
    Connection& connection = at(peer);
    if (connection.ending) continue;
    const bool wants_to_write = !connection.writer.empty();
    if (wants_to_write == connection.watched_for_writing) continue;
    const auto status = watcher().watch(connection.fd.get(), token(peer.index()), wants_to_write);
    if (!status.ok()) return false;
    connection.watched_for_writing = wants_to_write;
  }
  return true;
}

// Peers may still send for a while. Data that arrives at a closed socket resets the connection, and a peer with a full
// socket buffer would lose the end of what this rank has sent.
void TcpEndpoint::wait_for_acknowledgements() {
  for (const WorldRank peer : open_) os::end_sending(at(peer).fd.get());
  const SteadyClock clock;
  TimePoint last_moved = clock.now();
  std::size_t least = SIZE_MAX;
  while (true) {
    std::size_t left = 0;
    for (const WorldRank peer : open_) left += os::unacknowledged_bytes(at(peer).fd.get(), staging_);
    if (left == 0) return;
    const TimePoint now = clock.now();
    if (left < least) last_moved = now;
    least = std::min(left, least);
    if (now - last_moved > kClosePatience) return;
    os::pause(kCloseLook);
  }
}

void TcpEndpoint::close() {
  const bool inherited = !open_.empty() && at(open_.front()).fd.inherited();
  if (unsent_ > 0 && !inherited) flush_queues();
  if (!inherited) wait_for_acknowledgements();
  for (const WorldRank peer : open_) {
    Connection& connection = at(peer);
    watcher().forget(connection.fd.get());
    connection.writer.clear();
    connection.reader.clear();
    connection.fd.reset();
  }
  open_.clear();
  ending_.clear();
  unsent_ = 0;
}

}  // namespace

Result<std::unique_ptr<Endpoint>> make_tcp_endpoint(os::Poller& poller, const TcpOptions& options,
                                                    std::vector<os::Fd> sockets_by_rank) {
  auto endpoint = std::make_unique<TcpEndpoint>(poller, options);
  QCCL_TRY(endpoint->start(std::move(sockets_by_rank)));
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace qccl
