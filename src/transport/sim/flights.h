// The frames of a simulated network on their way through its pipes.
//
// A frame passes pipes, each with a rate and a queue: that of its connection, if connections are capped; out of its
// host; over the racks' uplinks, if it leaves its rack; into the target host. Between ranks of one host only the local
// rate applies. A frame enters a pipe once its first byte has arrived there and the frames before it are through. It
// arrives one latency (plus a seeded jitter) after the last pipe has passed it, never before an earlier frame of the
// same sender to the same receiver; with several connections, the receiver gets it after those. Where queues drop or
// packets are lost, frames between hosts do not pass the pipes whole: see packets.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transport/sim/flight.h"
#include "transport/sim/packets.h"
#include "transport/sim/pipes.h"
#include "transport/transport.h"

namespace qccl::sim {

// Objects that are reused with their memory.
template <class Item>
class ReusePool {
 public:
  // Is as an earlier user left it.
  Item& take() {
    if (unused_.empty()) {
      if (unused_.capacity() <= all_.size())
        unused_.reserve(2 * all_.size() + 1);  // so that give_back() never allocates
      unused_.push_back(&all_.emplace_back());
    }
    Item& taken = *unused_.back();
    unused_.pop_back();
    return taken;
  }
  void give_back(Item& item) { unused_.push_back(&item); }

 private:
  std::deque<Item> all_;
  std::vector<Item*> unused_;
};

class Flights final : private Reservation::Owner {
 public:
  Flights(int world, std::uint64_t seed, NetworkOptions options);

  const NetworkOptions& options() const { return options_; }
  // The time that a rank's processor spends on the frame, at either end.
  Nanoseconds processing_time(int from, int to, std::size_t bytes) const;

  // Room for a frame to be sent to that rank.
  Reservation outgoing(int to, std::size_t bytes, TrafficClass traffic);
  // A flight with the frame, to depart next. Valid until recycle(). `connection`: -1 if it is counted on none.
  Flight& make(int from, int to, ConstBytes frame, TrafficClass traffic, int connection = -1);
  // Tells the sender of a flight that it has arrived, at `now`.
  void send_receipt(const Flight& arrived, TimePoint now);
  // The sender's processor has finished with the frame at `time`, not before `now`.
  void depart(Flight& flight, TimePoint time, TimePoint now);
  void recycle(Flight& flight) { pool_.give_back(flight); }
  // The frame, with a meaningless payload where that was not kept: those bytes are valid until the next call.
  ConstBytes bytes(const Flight& flight);

  struct Event {
    TimePoint time;
    std::uint64_t order;
    Flight* flight;  // null: something happens to a packet
    bool operator>(const Event& other) const { return std::pair(time, order) > std::pair(other.time, other.order); }
  };
  // The next event until then, if there is one.
  std::optional<Event> next(TimePoint until) const;
  // Handles the next event. Returns the flight if it has arrived, otherwise null.
  Flight* step();
  // The flights to `rank` whose arrival has begun and that it has not received. Empty with size_only.
  std::vector<Flight*>& arriving(int rank) { return arriving_[static_cast<std::size_t>(rank)]; }

  // Bytes sent so far to other hosts, with headers.
  std::uint64_t wire_bytes() const { return wire_bytes_; }
  std::uint64_t frames() const { return frames_; }
  PacketCounts packets() const { return packets_ == nullptr ? PacketCounts{} : packets_->counts(); }

 private:
  void pass(Flight& flight, TimePoint now);
  void set_arrival(Flight& flight, TimePoint begun);
  void schedule(TimePoint time, Flight& flight);
  void give_back(const Reservation& room) override {
    outgoing_.give_back(*static_cast<std::vector<std::byte>*>(room.slot()));
  }

  const NetworkOptions options_;
  Pipes pipes_;
  std::mt19937_64 random_;
  std::unique_ptr<Packets> packets_;  // null: no queue drops, and frames pass the pipes whole
  std::vector<Event> events_;         // a heap, earliest first
  std::uint64_t next_order_ = 0;
  std::vector<TimePoint> last_arrival_;  // by sender and receiver
  std::vector<std::vector<Flight*>> arriving_;
  ReusePool<Flight> pool_;
  ReusePool<std::vector<std::byte>> outgoing_;
  std::vector<std::byte> blank_;  // size_only: the bytes that every data frame points at
  std::uint64_t wire_bytes_ = 0;
  std::uint64_t frames_ = 0;
};

}  // namespace qccl::sim
