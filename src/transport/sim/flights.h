// The options of a simulated network, its pipes, and the frames on their way through them.
//
// A frame passes pipes, each with a rate and a queue: that of its connection, if connections are capped; out of its
// host; over the racks' uplinks, if it leaves its rack; into the target host. Between ranks of one host only the local
// rate applies. A frame enters a pipe once its first byte has arrived there and the frames before it are through. It
// arrives one latency (plus a seeded jitter) after the last pipe has passed it, never before an earlier frame of the
// same sender to the same receiver; with several connections, the receiver gets it after those.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transport/transport.h"

namespace qccl::sim {

// Processor time that a rank spends on each frame that it sends or receives.
struct FrameWork {
  Nanoseconds each{0};
  double bytes_per_second = 0;
};

// Rates are bytes per second; 0 is infinitely fast.
struct NetworkOptions {
  double bytes_per_second = 0;  // out of a host
  Nanoseconds latency{0};
  Nanoseconds jitter{0};                // uniform in [0, jitter], from the seed
  std::size_t slots = 64;               // frames in flight per ordered pair before reserve() refuses
  double ingress_bytes_per_second = 0;  // into a host
  double burst_bytes = 0;               // bytes that pass an idle host's link at once, in either direction
  std::vector<int> hosts{};             // of each rank; empty: each rank is alone on its host
  double local_bytes_per_second = 0;    // from one rank to others of its host
  Nanoseconds local_latency{0};
  std::vector<int> sites{};     // of each rank; empty: `latency` is that between any two hosts
  Nanoseconds near_latency{0};  // between hosts of one site
  int connections = 1;          // to every rank of another host; each data frame goes on the one with the fewest bytes
  double flow_bytes_per_second = 0;  // of a connection
  std::uint64_t buffer_bytes = 0;    // on their way on a connection before reserve() refuses: from when a data frame is
                                     // sent until its sender knows that it has arrived; 0: unlimited
  int hosts_per_rack = 0;            // 0: all hosts are in one rack
  double rack_bytes_per_second = 0;  // up from a rack, and down into it
  // (host, rate): of this host's link out and in, if it is not that of the others.
  std::vector<std::pair<int, double>> slow_hosts{};
  // (rank, rate): everything this rank sends or receives passes an extra pipe of its own.
  std::vector<std::pair<int, double>> slow_ranks{};
  FrameWork wire_work{};
  FrameWork local_work{};
  Nanoseconds tick{1};  // ranks see arrivals at multiples of this
  // Payloads of data frames are not kept: receivers find meaningless bytes after the header.
  bool size_only = false;
};

Nanoseconds transmission_time(double bytes, double bytes_per_second);

// The pipes that a frame still has to pass.
struct Route {
  static constexpr std::size_t kMost = 7;
  std::array<int, kMost> pipes{};  // the next one last
  std::size_t count = 0;
  std::size_t after_latency = 0;  // number of pipes at the target's end

  void add(int pipe) { pipes[count++] = pipe; }
};

class Pipes {
 public:
  Pipes(int world, const NetworkOptions& options);

  bool is_local(int from, int to) const { return host_of(from) == host_of(to); }
  Route route(int from, int to, int connection) const;

  struct Passage {
    TimePoint begin;  // of the first byte, after the frames before it
    TimePoint end;    // of the last byte
  };
  // The first byte of a frame reaches the pipe at `now`.
  Passage pass(int pipe, std::size_t bytes, TimePoint now);

 private:
  struct Pipe {
    double bytes_per_second = 0;
    Nanoseconds burst{0};  // an idle pipe passes this much of the next bytes in no time
    TimePoint free{};      // when it is free at its rate; earlier than the clock by the unused burst
  };
  struct Location {
    int host = 0;
    int slow_pipe = -1;  // -1: none
  };

  int host_of(int rank) const { return locations_[static_cast<std::size_t>(rank)].host; }
  int add(double bytes_per_second, double burst_bytes = 0);

  const int hosts_per_rack_;
  const int connections_;
  int first_flow_ = -1;              // index in pipes_ of the first connection; -1: they have no cap
  std::vector<Location> locations_;  // by rank
  std::vector<Pipe> pipes_;
  std::vector<int> host_out_, host_in_, rack_up_, rack_down_, local_;  // indices in pipes_; local_ by rank
};

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
  Route route{};
  int connection = -1;       // -1: its bytes are not counted
  std::uint64_t number = 0;  // in the order of sending to that rank, where there are Connections
  bool is_receipt = false;   // not a frame, but the news at `to` that one of its frames has arrived at `from`
  DelayBreakdown delays{};
  TimePoint passed{};                // when the last byte passed the pipes so far
  bool has_departed = false;         // from its sender's processor
  bool has_arrival_time = false;     // its next event is its arrival
  bool was_offered = false;          // its receiver was asked for a destination of the payload
  std::byte* destination = nullptr;  // the receiver's answer
};

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
  void give_back(const Reservation& room) override {
    outgoing_.give_back(*static_cast<std::vector<std::byte>*>(room.slot()));
  }

  const NetworkOptions options_;
  Pipes pipes_;
  std::mt19937_64 random_;
  std::vector<Event> events_;  // a heap, earliest first
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
