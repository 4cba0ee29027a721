// Sends the engine's frames: builds them in the transport's own memory, keeps the eager budget of each peer and counts
// bytes.
//
// Eager budget: at most so many bytes of frames sent without a grant may be unconsumed per peer. Every frame
// carries back how many eager bytes its sender has consumed (modulo 2^32).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace qccl::engine {

// A stream of at most this many bytes may be sent before its receiver has posted. A grant costs a one-way latency, a
// third of the time of a 64 KiB operation on loopback TCP.
inline constexpr std::uint64_t kEagerStreamBytes = 64 * 1024;
inline constexpr std::uint32_t kEagerBudget = 1024 * 1024;
// All other ranks may send at once within a window: the budget of each.
constexpr std::uint32_t eager_budget(std::uint64_t window_bytes, int world) {
  const std::uint64_t share = window_bytes / static_cast<std::uint64_t>(std::max(1, world - 1));
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(share, kEagerBudget, std::uint64_t{1} << 30));
}
// In a data or message frame's phase: sent without a grant, counts against the budget.
inline constexpr std::uint16_t kEagerFlag = 0x8000;

struct TrafficCounters {
  std::uint64_t payload_bytes = 0;
  std::uint64_t header_bytes = 0;
  std::uint64_t board_bytes = 0;

  std::uint64_t data_bytes() const { return payload_bytes + board_bytes; }
  std::uint64_t bytes() const { return data_bytes() + header_bytes; }
};

// The eager bytes of each peer, in both directions, modulo 2^32. One thread.
class EagerBudgets {
 public:
  explicit EagerBudgets(int world) : peers_(static_cast<std::size_t>(world)) {}

  // The window of the job's ranks, before anything is sent; 0: they are near.
  void use_window(std::uint64_t bytes) {
    window_bytes_ = bytes;
    budget_ = eager_budget(bytes, static_cast<int>(peers_.size()));
  }
  std::uint64_t window_bytes() const { return window_bytes_; }

  // Whether the budget has room for a frame with that payload, and that such a frame was sent.
  bool has_room(WorldRank peer, std::size_t payload_bytes) const;
  void note_sent(WorldRank peer, std::size_t payload_bytes);
  // This rank has consumed an eager frame that `peer` had sent.
  void note_consumed(WorldRank peer, std::size_t payload_bytes);
  // From a header of `peer`: how much of ours it has consumed.
  void note_returned(WorldRank peer, std::uint32_t consumed);

  // What the next header to `peer` reports as consumed.
  std::uint32_t report(WorldRank peer);
  // Much of what `peer` sent was consumed and has not been reported.
  bool owes_report(WorldRank peer) const;
  // Whether any report may be due since the last call.
  bool take_due() { return std::exchange(reports_due_, false); }
  void set_due() { reports_due_ = true; }

 private:
  struct Peer {
    std::uint32_t sent = 0;
    std::uint32_t returned = 0;
    std::uint32_t consumed = 0;
    std::uint32_t reported = 0;
  };

  std::vector<Peer> peers_;
  std::uint64_t window_bytes_ = 0;
  std::uint32_t budget_ = kEagerBudget;
  bool reports_due_ = false;
};

// The part of a frame's room for its payload.
inline Bytes payload_room(const Reservation& room) { return room.bytes().subspan(wire::kHeaderBytes); }

// One thread at a time (the driver).
class FrameSender {
 public:
  FrameSender(Transport& transport, int world, bool checksum);

  // Room for a frame with a payload of up to `max_payload` bytes; none if there is none now.
  Reservation begin(WorldRank peer, std::size_t max_payload, TrafficClass traffic) {
    return transport_.reserve(peer, wire::kHeaderBytes + max_payload, traffic);
  }
  // The same for a payload that something else writes; none where the transport has no such room now.
  Reservation hold(WorldRank peer, std::size_t max_payload) {
    return rooms_ != nullptr ? rooms_->hold(peer, wire::kHeaderBytes + max_payload) : Reservation();
  }
  // Completes and sends it; the header's sizes and checksums are filled in here. The payload lies at the front of
  // payload_room() or anywhere else, and is not larger than begin() was told.
  void finish(Reservation&& room, wire::FrameHeader header, ConstBytes payload);
  // A frame without payload in one go; false if there is no room now.
  bool send_control(WorldRank peer, wire::FrameHeader header, ConstBytes payload = {});

  EagerBudgets& eager() { return eager_; }
  const EagerBudgets& eager() const { return eager_; }
  // What a Frame does when it ends.
  void consume(const wire::FrameHeader& header, const ReceivedFrame& frame);
  // Sends a heartbeat to each peer that has much consumed and unreported; true if any was sent.
  bool send_reports();

  TimePoint last_sent(WorldRank peer) const { return last_sent_[peer.index()]; }
  void set_now(TimePoint now) { now_ = now; }

  Transport& transport() { return transport_; }
  const TrafficCounters& counters() const { return counters_; }
  void note_board_bytes(std::size_t bytes) { counters_.board_bytes += bytes; }

 private:
  void complete(wire::FrameHeader& header, WorldRank peer, ConstBytes payload);

  Transport& transport_;
  FrameRooms* const rooms_;
  const bool checksum_;
  std::vector<TimePoint> last_sent_;  // by peer
  EagerBudgets eager_;
  TrafficCounters counters_;
  TimePoint now_{};
};

}  // namespace qccl::engine
