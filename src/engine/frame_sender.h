// Sends the engine's frames: builds them in the transport's own memory, keeps the eager budget of each peer and counts
// bytes.
//
// Eager budget: at most kEagerBudget bytes of frames sent without a grant may be unconsumed per peer. Every frame
// carries back how many eager bytes its sender has consumed (modulo 2^32).
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace qccl::engine {

// A stream of at most this many bytes may be sent before its receiver has posted. A grant costs a one-way latency, a
// third of the time of a 64 KiB operation on loopback TCP.
inline constexpr std::size_t kEagerStreamBytes = 64 * 1024;
inline constexpr std::uint32_t kEagerBudget = 1024 * 1024;
// In a data or message frame's phase: sent without a grant, counts against the budget.
inline constexpr std::uint16_t kEagerFlag = 0x8000;

struct TrafficCounters {
  std::uint64_t payload_bytes = 0;
  std::uint64_t header_bytes = 0;
  std::uint64_t board_bytes = 0;

  std::uint64_t data_bytes() const { return payload_bytes + board_bytes; }
  std::uint64_t bytes() const { return data_bytes() + header_bytes; }
};

// One thread at a time (the driver).
class FrameSender {
 public:
  FrameSender(Transport& transport, int world, bool checksum);

  // Room for the payload of a frame, up to `max_payload` bytes; data() is null if there is none now, and not null for
  // zero bytes.
  Bytes begin(WorldRank peer, std::size_t max_payload, TrafficClass traffic);
  // Completes and sends it; the header's sizes and checksums are filled in here. The payload lies at the front of that
  // room or anywhere else, and is not larger than begin() was told.
  void finish(wire::FrameHeader header, ConstBytes payload);
  // Gives up a frame that was begun, if there is one, because its payload cannot be written.
  void abandon();
  // A frame without payload in one go; false if there is no room now.
  bool send_control(WorldRank peer, wire::FrameHeader header, ConstBytes payload = {});

  // Whether the eager budget has room for a frame with that payload, and that such a frame was sent.
  bool eager_room(WorldRank peer, std::size_t payload_bytes) const;
  void note_eager_sent(WorldRank peer, std::size_t payload_bytes);
  // This rank has consumed an eager frame that `peer` had sent.
  void note_eager_consumed(WorldRank peer, std::size_t payload_bytes);
  // Releases a frame; one sent eagerly leaves its sender's budget.
  void consume(const wire::FrameHeader& header, const ReceivedFrame& frame);
  // From a header of `peer`: how much of ours it has consumed.
  void note_eager_returned(WorldRank peer, std::uint32_t consumed);
  // Sends a heartbeat to each peer that has much consumed and unreported; true if any was sent.
  bool send_reports();

  TimePoint last_sent(WorldRank peer) const { return peers_[peer.index()].last_sent; }
  void set_now(TimePoint now) { now_ = now; }

  Transport& transport() { return transport_; }
  const TrafficCounters& counters() const { return counters_; }
  void note_board_bytes(std::size_t bytes) { counters_.board_bytes += bytes; }

 private:
  struct Peer {
    std::uint32_t eager_sent = 0;
    std::uint32_t eager_returned = 0;
    std::uint32_t eager_consumed = 0;
    std::uint32_t eager_reported = 0;
    TimePoint last_sent{};
  };

  Peer& peer(WorldRank rank) { return peers_[rank.index()]; }
  const Peer& peer(WorldRank rank) const { return peers_[rank.index()]; }

  Transport& transport_;
  const bool checksum_;
  std::vector<Peer> peers_;
  TrafficCounters counters_;
  TimePoint now_{};
  bool reports_due_ = false;
  Bytes frame_;
  WorldRank target_;
};

}  // namespace qccl::engine
