// A network in memory with a clock of its own: whole collectives of many ranks in one thread,
// repeatable from a seed.
//
// A frame passes pipes, each with a rate and a queue: out of its host, over the racks' uplinks where
// it leaves its rack, into the other host. It begins to pass a pipe when its first byte has come and
// the frames before it are through; it has arrived when the last pipe has let it through, the
// latency (and a seeded jitter) later, never before an earlier frame of the same link. Between ranks
// of one host there is only the local rate and latency. Faults: kill a rank, stop a rank, damage a
// frame.
//
// Of the frames whose first byte has come two thirds are placed, if their receiver says where: until they are received
// what lies there is garbage.
//
// A rank's processor does one thing after the other: frames take it some time at both ends, work() takes more, and what
// the rank sends leaves when its processor has come to it. Who looks at ranks does so when they are free (sim/world.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transport/transport.h"

namespace qccl::sim {

// What a rank's processor does for a frame that it puts into a link or takes out of one.
struct FrameWork {
  Nanoseconds each{0};
  double bytes_per_second = 0;
};

// Rates are bytes a second; 0 is infinitely fast.
struct LinkOptions {
  double bytes_per_second = 0;  // out of a host
  Nanoseconds latency{0};
  Nanoseconds jitter{0};                // uniform in [0, jitter], from the seed
  std::size_t slots = 64;               // frames in flight per ordered pair before reserve() refuses
  double ingress_bytes_per_second = 0;  // into a host
  double burst_bytes = 0;               // that pass a host's link at once, either way, when it has been idle
  std::vector<int> hosts{};             // of each rank; empty: each rank is alone on its host
  double local_bytes_per_second = 0;    // from one rank to others of its host
  Nanoseconds local_latency{0};
  int hosts_per_rack = 0;            // 0: all hosts are in one rack
  double rack_bytes_per_second = 0;  // up from a rack, and down into it
  // (rank, rate): what this rank sends or receives, wherever, passes a pipe of its own.
  std::vector<std::pair<int, double>> slow_ranks{};
  FrameWork wire_work{};
  FrameWork local_work{};
  Nanoseconds tick{1};  // ranks see arrivals at multiples of this
  // Payloads of data frames are not kept: what a receiver finds behind the header means nothing.
  bool size_only = false;
};

// Where the time went that ended with the last frame a rank received, following back who sent it
// and what that rank had received last before.
struct Account {
  Nanoseconds wire{0};     // being sent, or queued for it at the sender's host
  Nanoseconds latency{0};  // travelling
  Nanoseconds working{0};  // of ranks' processors
  Nanoseconds waiting{0};  // queued behind frames of other hosts, or for a rank to send
};

class Endpoint;

// Owns all endpoints; one thread.
class Network {
 public:
  Network(int world, std::uint64_t seed, LinkOptions options);
  ~Network();

  Transport& endpoint(int rank);
  ManualClock& clock() { return clock_; }

  // The rank is dead from now on: its peers see a loss, what it had sent still arrives.
  void kill(int rank);
  // The rank neither sends nor takes anything until it goes on; nobody is told.
  void stop(int rank);
  void go_on(int rank);
  bool running(int rank) const;

  // Sees, and may damage, every frame at the moment it is sent.
  using Tap = std::function<void(int from, int to, Bytes frame)>;
  void set_tap(Tap tap) { tap_ = std::move(tap); }
  // Frames that `rank` received and has not released.
  std::size_t held_frames(int rank) const { return held_frames_[index(rank)]; }
  // Frames that were received with their payload in its place, and those on their way to `rank` that have one.
  std::uint64_t placed_frames() const { return placed_frames_; }
  std::size_t places_in_use(int rank) const;

  // Sets the clock to the next arrival at a running rank; false if nothing is on its way.
  bool advance();
  // When that is; kForever if nothing is on its way that arrives until then.
  TimePoint next_arrival(TimePoint until = kForever);
  // Ranks with something new since the last call: a frame, a loss, room to send, or woken by wake().
  std::vector<int> take_woken();
  void wake(int rank);

  // The rank's processor has so much more to do, which what it sends from now on waits for.
  void work(int rank, Nanoseconds time);
  // When it has done all: now, or later.
  TimePoint free_at(int rank) const { return std::max(clock_.now(), ranks_[index(rank)].busy_until); }

  // With what the rank has done and waited for since its last arrival, if it acts when it is free.
  Account account(int rank) const;
  // Bytes sent so far to other hosts, with headers.
  std::uint64_t wire_bytes() const { return wire_bytes_; }
  std::uint64_t frames() const { return frames_; }

 private:
  friend class Endpoint;

  struct Pipe {
    double bytes_per_second = 0;
    Nanoseconds burst{0};  // so long an idle pipe's next bytes take no time
    TimePoint free{};      // at its rate; it is before the clock by the burst it has left
  };
  // The pipes that a frame still has to pass.
  struct Route {
    static constexpr std::size_t kMost = 6;
    std::array<int, kMost> pipes;  // the next one last
    std::size_t count = 0;
    std::size_t crossing = 0;  // so many of them lie behind the latency
    void add(int pipe) { pipes[count++] = pipe; }
  };
  struct Flight {
    int from;
    int to;
    std::size_t size;
    std::vector<std::byte> bytes;  // size_only: of data the header
    Route route;
    TimePoint passed{};  // by the last byte: the pipes so far
    bool has_left = false;
    bool has_landed = false;
    bool was_asked_for = false;   // where its payload belongs
    std::byte* placed = nullptr;  // there
    Account account;
  };
  struct Event {
    TimePoint time;
    std::uint64_t order;
    Flight* flight;
    bool operator>(const Event& other) const { return std::pair(time, order) > std::pair(other.time, other.order); }
  };
  struct Rank {
    int host = 0;
    int slow_pipe = -1;
    std::deque<Flight*> arrived;
    std::vector<Flight*> coming;  // and these: begun to come, and not received; size_only: none
    Account account;
    TimePoint last_arrival{};
    TimePoint busy_until{};
    bool is_woken = false;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t link(int from, int to) const { return index(from) * index(world_) + index(to); }
  int add_pipe(double bytes_per_second, double burst_bytes = 0);
  void lay_pipes();
  Route route(int from, int to) const;
  Flight& make_flight(int from, int to, ConstBytes frame, TrafficClass traffic);
  bool is_local(int from, int to) const { return ranks_[index(from)].host == ranks_[index(to)].host; }
  void send(int from, int to, ConstBytes frame, TrafficClass traffic);
  // `rank` has ended the connection: the peer sees that behind what was sent before.
  void end_connection(int rank, int peer);
  // The processor's of a rank at either end.
  Nanoseconds frame_work(int from, int to, std::size_t bytes) const;
  // Its sender's processor is done with it.
  void leave(Flight& flight, TimePoint now);
  // The first byte is at the flight's next pipe, at `now`.
  void pass(Flight& flight, TimePoint now);
  void schedule(TimePoint time, Flight& flight);
  void land(Flight& flight, TimePoint begun);
  Event pop();
  void handle(const Event& event);
  static bool is_kept(const Flight& flight) { return flight.bytes.size() == flight.size; }
  // Handles all that is due at the clock's time.
  void settle_due();

  const int world_;
  const LinkOptions options_;
  ManualClock clock_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<Pipe> pipes_;
  std::vector<int> host_out_, host_in_, rack_up_, rack_down_, local_;  // pipes; local_ by rank
  std::vector<Event> events_;                                          // a heap, the earliest first
  std::uint64_t next_order_ = 0;
  std::vector<std::uint32_t> in_flight_;  // by link: sent and not received
  std::vector<TimePoint> last_landing_;   // by link
  std::vector<bool> dead_;
  std::vector<bool> stopped_;
  std::vector<bool> ended_;  // by link: the connection, by its sender
  std::vector<int> ends_;    // by rank: connections that its peers have ended
  std::vector<std::size_t> held_frames_;
  std::vector<int> woken_;
  std::deque<Flight> flights_;       // all there ever were at a time
  std::vector<Flight*> unused_;      // of those, to be used again with their memory
  std::vector<std::byte> outgoing_;  // the one reservation
  std::vector<std::byte> blank_;     // size_only: what every data frame's bytes point at
  std::uint64_t wire_bytes_ = 0;
  std::uint64_t frames_ = 0;
  std::uint64_t placed_frames_ = 0;
  Tap tap_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace qccl::sim
