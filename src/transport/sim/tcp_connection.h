// One direction of a simulated TCP connection, both ends: a stream of bytes cut into packets, of which some are lost.
//
// The sender keeps what it may not send yet. A packet is whole segments, as many as the rate sends in a millisecond and
// at most half a window, and keeps its size when it is sent again. Windows count segments, of which the last may be
// short. One that is not full for a timeout shrinks to what was used, and more after a time without data. Every packet
// that arrives is acknowledged, and nothing overtakes: a packet sent before one that is acknowledged is lost (RFC 8985
// without its margin). If nothing is acknowledged for two round trips, the last packet is sent again, or a new one (its
// probe for a lost tail); 200 ms later where a segment is alone on its way. If nothing is for a round trip and 200 ms,
// all packets are sent again; each time after twice as long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "transport/sim/congestion.h"

namespace qccl::sim {

struct Flight;

class TcpConnection {
 public:
  // `round_trip`: of the handshake.
  TcpConnection(std::unique_ptr<Congestion> congestion, Nanoseconds round_trip, std::size_t most_packet_bytes);

  // A packet on its way. The stream's packets have numbers, and so have their transmissions.
  struct Packet {
    std::uint64_t number = 0;
    std::uint64_t transmission = 0;
    std::size_t bytes = 0;
    bool is_repeated = false;
  };

  // ---- sending

  void write(Flight& frame, std::size_t bytes);
  // The next packet to leave now, if there is one.
  std::optional<Packet> send(TimePoint now);
  void acknowledge(const Packet& packet, TimePoint now);
  // When to call on_timer(), then send().
  TimePoint next_timer() const;
  void on_timer(TimePoint now);

  const Congestion& congestion() const { return *congestion_; }
  std::uint64_t in_flight() const { return in_flight_; }
  std::uint64_t timeouts() const { return timeouts_; }

  // ---- receiving

  // The frames that the packet completes, in the order of sending.
  std::vector<Flight*> arrive(const Packet& packet);

 private:
  static constexpr Nanoseconds kLeastTimeout = std::chrono::milliseconds(200);

  // A packet that is not known to have arrived with all before it.
  struct Piece {
    std::size_t bytes = 0;
    std::size_t segment_bytes = 0;  // if its last segment were full
    bool has_arrived = false;
    bool is_acknowledged = false;
  };
  struct Transmission {
    std::uint64_t number = 0;  // of the packet
    std::size_t segment_bytes = 0;
    TimePoint sent{};
    // When it was sent: what had been delivered by then, when the last of it was, and when that had been sent.
    std::uint64_t delivered = 0;
    TimePoint delivered_at{};
    TimePoint first_sent{};
    bool is_limited = false;
  };
  struct Written {
    Flight* frame = nullptr;
    std::uint64_t end = 0;  // in the stream
  };

  Piece& piece(std::uint64_t number) { return pieces_[static_cast<std::size_t>(number - first_piece_)]; }
  bool is_done(std::uint64_t number) { return number < first_piece_ || piece(number).is_acknowledged; }
  std::uint64_t end_piece() const { return first_piece_ + pieces_.size(); }

  // ---- sending
  std::optional<Packet> next_packet(TimePoint now);
  std::uint64_t last_missing();
  std::optional<std::uint64_t> next_lost();
  std::size_t window_segments() const;
  std::size_t most_segments() const;
  bool has_room();
  // 0 if none may leave.
  std::size_t next_bytes(TimePoint now);
  bool is_worth_waiting(std::size_t room, TimePoint now) const;
  Packet send_new(std::size_t bytes, TimePoint now);
  Packet send_again(std::uint64_t number, TimePoint now);
  std::uint64_t transmit(std::uint64_t number, TimePoint now);
  // All has left that may.
  void note_use(TimePoint now);

  // ---- acknowledgements
  // Takes a transmission and those before it, which are lost, off the line. Nothing if it is no longer awaited.
  std::optional<Transmission> take_off(std::uint64_t transmission);
  // No transmission is awaited any more.
  void give_up_all();
  void note_loss();
  Acknowledgement news_of(const Transmission& acknowledged, std::size_t bytes, TimePoint now);
  void note_round_trip(Nanoseconds sample);
  void note_recovery();

  // ---- timers
  Nanoseconds timeout() const { return round_trip_ + std::max(kLeastTimeout, 4 * variation_); }
  TimePoint timeout_at() const;
  TimePoint probe_at() const;
  void time_out();

  std::unique_ptr<Congestion> congestion_;
  const std::size_t most_packet_bytes_;

  // The stream, in bytes, and its packets.
  std::uint64_t written_ = 0;
  std::uint64_t cut_ = 0;
  std::deque<Piece> pieces_;
  std::uint64_t first_piece_ = 0;
  std::deque<Transmission> transmissions_;  // on their way, in order of sending
  std::uint64_t first_transmission_ = 0;
  std::uint64_t in_flight_ = 0;     // bytes, of whole segments
  std::deque<std::uint64_t> lost_;  // packets to be sent again; some may have arrived since

  // Recovery from losses, until the packets cut before have arrived.
  std::uint64_t recovery_end_ = 0;
  bool is_recovering_ = false;
  bool is_timed_out_ = false;

  // What rates are computed from.
  std::uint64_t delivered_ = 0;
  TimePoint delivered_at_{};
  TimePoint first_sent_{};
  std::uint64_t round_end_ = 0;      // `delivered` of the first packet of the next round
  std::uint64_t limited_until_ = 0;  // delivered bytes

  // How much of the window is used, until the packets cut by then have arrived.
  bool is_held_by_window_ = false;
  bool has_sent_ = false;
  bool fills_window_ = false;
  std::uint64_t most_in_flight_ = 0;
  std::uint64_t use_end_ = 0;

  // Timers.
  TimePoint next_departure_{};   // at the rate
  TimePoint send_at_{kForever};  // until then the rate keeps something from leaving
  TimePoint last_sent_{};
  TimePoint last_progress_{};
  Nanoseconds least_round_trip_;
  Nanoseconds round_trip_;  // smoothed, RFC 6298
  Nanoseconds variation_;
  int backoff_ = 0;
  bool has_probed_ = false;  // since the last acknowledgement
  bool owes_probe_ = false;
  std::uint64_t timeouts_ = 0;

  // The receiver's.
  std::uint64_t next_piece_ = 0;
  std::uint64_t received_ = 0;  // bytes without a gap
  std::deque<Written> frames_;
};

}  // namespace qccl::sim
