// The receiving side of a TCP endpoint: reads the sockets, queues complete frames, and reports a lost peer after the
// frames that came before the loss.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/tcp/connection_table.h"

namespace qccl::tcp {

// One thread.
class TcpReceiver {
 public:
  // A connection with `limit_bytes` of frames that receive() has not handed out is not read.
  TcpReceiver(SharedBuffers& shared, ConnectionTable& connections, std::size_t limit_bytes)
      : shared_(shared), connections_(connections), limit_bytes_(limit_bytes) {}

  // Call this once the connections are open: reserves memory, so that no loss is missed for want of it.
  void prepare() { losses_.reserve(connections_.open_connections().size()); }

  // Reads the sockets, at most some of their data; true if any had data or was lost.
  bool read() {
    const auto& open = connections_.open_connections();
    const std::size_t open_before = open.size();
    std::size_t bytes = 0;
    if (os::Poller* const poller = connections_.own_poller()) {
      for (const auto& event : poller->wait(Nanoseconds::zero())) {
        if (event.readable && bytes < kReadBytesPerCall) bytes += read_from(connections_.of(event));
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
  bool has_news() const { return !undelivered_.empty() || !losses_.empty(); }

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
      return ReceivedFrame{connection.peer(), bytes, frame, {frame->placed, frame->bytes - bytes.size()}};
    }
    return std::nullopt;
  }

  void set_placement(PayloadPlacement* placement) { placement_ = placement; }
  void withdraw() {
    bool has_all = true;
    for (Connection* const each : connections_.open_connections()) has_all &= each->withdraw();
    FrameList frames = std::exchange(undelivered_, {});
    while (!frames.empty()) has_all &= keep_withdrawn(frames.pop_front());
    if (!has_all) throw std::bad_alloc();
  }

  std::optional<Transport::PeerLoss> next_loss() {
    const auto loss =
        std::ranges::find_if(losses_, [](const auto& each) { return each.first->undelivered_bytes == 0; });
    if (loss == losses_.end()) return std::nullopt;
    Transport::PeerLoss taken{loss->first->peer(), std::move(loss->second)};
    losses_.erase(loss);
    return taken;
  }
  // Its loss is not reported.
  void forget_loss(const Connection& connection) {
    std::erase_if(losses_, [&](const auto& loss) { return loss.first == &connection; });
  }

 private:
  // Limits for one read(), so that the engine decodes while data is still in cache and no peer starves another.
  static constexpr std::size_t kReadBytesPerPeer = kMaxFrameBytes;
  static constexpr std::size_t kReadBytesPerCall = 1024 * 1024;

  std::size_t read_from(Connection& connection) {
    if (!connection.in_use() || connection.undelivered_bytes >= limit_bytes_) return 0;
    FrameList frames;
    auto result = connection.read(kReadBytesPerPeer, placement_, frames);
    while (!frames.empty()) {
      FrameBuffer* const frame = frames.pop_front();
      frame->connection = &connection;
      connection.undelivered_bytes += frame->bytes;
      undelivered_.push_back(frame);
    }
    if (!result.loss.empty()) {
      losses_.emplace_back(&connection, std::move(result.loss));
      connections_.close(connection);
    }
    return result.bytes;
  }

  // False: there is no memory for the frame, and its peer's frames end with those before it.
  bool keep_withdrawn(FrameBuffer* frame) {
    try {
      undelivered_.push_back(frame->placed != nullptr ? with_own_payload(frame, shared_.pool) : frame);
      return true;
    } catch (const std::bad_alloc&) {
      frame->connection->undelivered_bytes -= frame->bytes;
      frame->connection->stop_reading();
      shared_.pool.put_back(frame);
      return false;
    }
  }

  SharedBuffers& shared_;
  ConnectionTable& connections_;
  const std::size_t limit_bytes_;
  PayloadPlacement* placement_ = nullptr;
  FrameList undelivered_;
  std::vector<std::pair<Connection*, std::string>> losses_;  // with their causes
  std::size_t next_to_read_ = 0;  // index of the open connection where a read() that reached its limit stopped
};

}  // namespace qccl::tcp
