// The sending side of a TCP endpoint: the reservation, and bursts of frames, of which the small ones are sent together.
#pragma once

#include <cstdint>
#include <utility>

#include "base/log.h"
#include "transport/tcp/connection_table.h"

namespace qccl::tcp {

// One thread.
class TcpSender {
 public:
  TcpSender(SharedBuffers& shared, const ConnectionTable& connections) : shared_(shared), connections_(connections) {}

  // See Transport.
  Bytes reserve(Connection& connection, std::size_t max_bytes, TrafficClass traffic) {
    QCCL_CHECK(reserved_ == nullptr);
    if (!connection.may_send(max_bytes, traffic)) return {};
    reserved_ = shared_.pool.take(max_bytes);
    reserved_->connection = &connection;
    reserved_->traffic = traffic;
    return {reserved_->data(), max_bytes};
  }

  // Sends the first `head_bytes` of the reservation, then `payload`. No bytes: cancels the reservation.
  void commit(std::size_t head_bytes, ConstBytes payload) {
    FrameBuffer* const frame = std::exchange(reserved_, nullptr);
    frame->bytes = static_cast<std::uint32_t>(head_bytes + payload.size());
    if (frame->bytes == 0 || !frame->connection->is_open()) return shared_.pool.put_back(frame);
    // All peers share the link: a small frame, such as a grant, that left after a long one would wait for it there.
    if (frame->bytes >= kLongFrameBytes && !flushed()) {
      for (Connection* const each : connections_.open_connections()) {
        if (each->gathers()) each->flush();
      }
    }
    frame->connection->send(frame, burst_, payload);
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

  SharedBuffers& shared_;
  const ConnectionTable& connections_;
  FrameBuffer* reserved_ = nullptr;
  std::uint64_t burst_ = 1;  // number of the current burst: commits between two progress() calls
};

}  // namespace qccl::tcp
