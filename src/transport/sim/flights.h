// The frames on their way through a simulated network.
//
// A frame enters a pipe once its first byte has arrived there and the frames before it are through. It arrives one
// latency (plus a seeded jitter) after the last pipe has passed it, never before an earlier frame of the same sender to
// the same receiver.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "transport/sim/pipes.h"
#include "transport/transport.h"

namespace qccl::sim {

// Where the time before a rank's last received frame went, traced back through the frame's sender and the frame that
// the sender had received before.
struct DelayBreakdown {
  Nanoseconds wire{0};     // being sent, or queued for it at the sender's host
  Nanoseconds latency{0};  // travelling
  Nanoseconds working{0};  // in ranks' processors
  Nanoseconds waiting{0};  // queued behind frames of other hosts, or for a rank to send
};

struct Flight {
  int from = -1;
  int to = -1;
  std::size_t size = 0;
  std::vector<std::byte> bytes;  // size_only: data frames keep only the header
  Route route;
  DelayBreakdown delays{};
  TimePoint passed{};                // when the last byte passed the pipes so far
  bool has_departed = false;         // from its sender's processor
  bool has_arrival_time = false;     // its next event is its arrival
  bool was_offered = false;          // its receiver was asked for a destination of the payload
  std::byte* destination = nullptr;  // the receiver's answer
};

class Flights {
 public:
  Flights(int world, std::uint64_t seed, NetworkOptions options);

  const NetworkOptions& options() const { return options_; }
  // The time that a rank's processor spends on the frame, at either end.
  Nanoseconds processing_time(int from, int to, std::size_t bytes) const;

  // Memory for the next frame to be sent.
  Bytes outgoing(std::size_t bytes);
  // A flight with the frame, to depart next. Valid until recycle().
  Flight& make(int from, int to, ConstBytes frame, TrafficClass traffic);
  // The sender's processor has finished with the frame at `time`, not before `now`.
  void depart(Flight& flight, TimePoint time, TimePoint now);
  void recycle(Flight& flight) { unused_.push_back(&flight); }
  // The frame, with a meaningless payload where that was not kept: those bytes are valid until the next call.
  ConstBytes bytes(const Flight& flight);

  struct Event {
    TimePoint time;
    std::uint64_t order;
    Flight* flight;
    bool operator>(const Event& other) const { return std::pair(time, order) > std::pair(other.time, other.order); }
  };
  // The next event until then, or null.
  const Event* next(TimePoint until) const {
    return events_.empty() || events_.front().time > until ? nullptr : &events_.front();
  }
  // Handles the next event. Returns the flight if it has arrived, otherwise null.
  Flight* step();
  // The flights to `rank` whose arrival has begun and that it has not received. Empty with size_only.
  std::vector<Flight*>& arriving(int rank) { return arriving_[static_cast<std::size_t>(rank)]; }

  // Bytes sent so far to other hosts, with headers.
  std::uint64_t wire_bytes() const { return wire_bytes_; }
  std::uint64_t frames() const { return frames_; }

 private:
  void pass(Flight& flight, TimePoint now);
  void set_arrival(Flight& flight, TimePoint begun);
  void schedule(TimePoint time, Flight& flight);

  const NetworkOptions options_;
  Pipes pipes_;
  std::mt19937_64 random_;
  std::vector<Event> events_;  // a heap, earliest first
  std::uint64_t next_order_ = 0;
  std::vector<TimePoint> last_arrival_;  // by sender and receiver
  std::vector<std::vector<Flight*>> arriving_;
  std::deque<Flight> all_;
  std::vector<Flight*> unused_;  // of all_; reused with their memory
  std::vector<std::byte> outgoing_;
  std::vector<std::byte> blank_;  // size_only: the bytes that every data frame points at
  std::uint64_t wire_bytes_ = 0;
  std::uint64_t frames_ = 0;
};

}  // namespace qccl::sim
