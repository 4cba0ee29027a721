// The packets of a simulated network whose queues drop: TCP carries the frames between hosts.
//
// A packet passes the pipes of its route, each after the one before has passed it whole. It is dropped if a host's
// queue, out or in, has no room for it (as by tests/wan/wan_link.cc with real packets), or lost at random. Its
// acknowledgement goes back through the pipes and queues of the other direction and is never lost: a later one says as
// much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "transport/sim/flight.h"
#include "transport/sim/tcp_connection.h"

namespace qccl::sim {

struct PacketCounts {
  std::uint64_t sent = 0;  // at all, and those of them that were sent again
  std::uint64_t sent_again = 0;
  std::uint64_t dropped_up = 0;  // by queues out of hosts, and into hosts
  std::uint64_t dropped_down = 0;
  std::uint64_t lost = 0;      // at random
  std::uint64_t timeouts = 0;  // of connections

  PacketCounts since(const PacketCounts& before) const {
    return {sent - before.sent,
            sent_again - before.sent_again,
            dropped_up - before.dropped_up,
            dropped_down - before.dropped_down,
            lost - before.lost,
            timeouts - before.timeouts};
  }
};

class Packets {
 public:
  // `pipes` and `options` must outlive it.
  Packets(Pipes& pipes, const NetworkOptions& options, int world, std::uint64_t seed);

  // The frame departs: it goes behind those of its connection.
  void write(Flight& frame, TimePoint now);

  // The time of the next event; kForever if there is none.
  TimePoint next() const { return events_.empty() ? kForever : events_.front().time; }
  // Handles the next event. Returns the frames that have arrived whole, and adds to their delays.
  std::vector<Flight*> step();

  PacketCounts counts() const;

 private:
  // A connection from one rank to another.
  struct Stream {
    TcpConnection tcp;
    Route there, back;
    Nanoseconds latency{0};
    TimePoint timer = kForever;  // of its event
  };
  enum class Kind : std::uint8_t { packet, acknowledgement, timer };
  struct Event {
    TimePoint time{};
    std::uint64_t order = 0;
    Stream* stream = nullptr;
    Kind kind = Kind::timer;
    std::uint8_t pipes_left = 0;
    TcpConnection::Packet packet{};
    Nanoseconds waited{0};  // in queues at the target's end
    bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
  };

  Stream& stream_of(const Flight& frame);
  void schedule(TimePoint time, Event event);
  // Sends what may leave now, and sets the timer.
  void pump(Stream& stream, TimePoint now);
  void launch(Stream& stream, const TcpConnection::Packet& packet, TimePoint now);
  void hop(Event event);
  std::vector<Flight*> arrive(const Event& event);
  void handle_timer(const Event& event);

  Pipes& pipes_;
  const NetworkOptions& options_;
  const int world_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Stream>> streams_;  // by sender, receiver and connection; null: nothing was sent
  std::vector<Event> events_;                     // a heap, earliest first
  std::uint64_t next_order_ = 0;
  PacketCounts counts_;
};

}  // namespace qccl::sim
