// A simulated network in memory with its own clock: runs whole collectives of many ranks in one thread, repeatable from
// a seed.
//
// A frame passes pipes, each with a rate and a queue: out of its host, over the racks' uplinks if it leaves its rack,
// into the target host. It enters a pipe once its first byte has arrived there and the frames before it are through. It
// arrives one latency (plus a seeded jitter) after the last pipe has passed it, never before an earlier frame of the
// same link. Between ranks of one host only the local rate and latency apply. Faults: kill a rank, stop a rank, corrupt
// a frame.
//
// Two thirds of the frames whose first byte has arrived are placed, if the receiver gives them memory. That memory
// holds garbage until the frame is received.
//
// A rank's processor does one thing at a time: frames cost it time at both ends, work() costs it more, and a frame
// leaves once the processor has reached it. Only look at ranks when they are free (sim/simulated_job.h).
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

// Processor time a rank spends on a frame that it puts into a link or takes out of one.
struct FrameWork {
  Nanoseconds each{0};
  double bytes_per_second = 0;
};

// Rates are bytes per second; 0 is infinitely fast.
struct LinkOptions {
  double bytes_per_second = 0;  // out of a host
  Nanoseconds latency{0};
  Nanoseconds jitter{0};                // uniform in [0, jitter], from the seed
  std::size_t slots = 64;               // frames in flight per ordered pair before reserve() refuses
  double ingress_bytes_per_second = 0;  // into a host
  double burst_bytes = 0;               // bytes that pass an idle host's link at once, in either direction
  std::vector<int> hosts{};             // of each rank; empty: each rank is alone on its host
  double local_bytes_per_second = 0;    // from one rank to others of its host
  Nanoseconds local_latency{0};
  int hosts_per_rack = 0;            // 0: all hosts are in one rack
  double rack_bytes_per_second = 0;  // up from a rack, and down into it
  // (rank, rate): everything this rank sends or receives passes an extra pipe of its own.
  std::vector<std::pair<int, double>> slow_ranks{};
  FrameWork wire_work{};
  FrameWork local_work{};
  Nanoseconds tick{1};  // ranks see arrivals at multiples of this
  // Payloads of data frames are not kept: receivers find meaningless bytes after the header.
  bool size_only = false;
};

// Where the time before a rank's last received frame went, traced back through the frame's sender and the frame that
// the sender had received before.
struct Account {
  Nanoseconds wire{0};     // being sent, or queued for it at the sender's host
  Nanoseconds latency{0};  // travelling
  Nanoseconds working{0};  // in ranks' processors
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

  // The rank is dead from now on: its peers see a loss, and frames it has already sent still arrive.
  void kill(int rank);
  // The rank neither sends nor takes anything until go_on(); no peer is notified.
  void stop(int rank);
  void go_on(int rank);
  bool running(int rank) const;

  // Sees, and may corrupt, every frame at the moment it is sent.
  using Tap = std::function<void(int from, int to, Bytes frame)>;
  void set_tap(Tap tap) { tap_ = std::move(tap); }
  // Frames that `rank` received and has not released.
  std::size_t held_frames(int rank) const { return held_frames_[index(rank)]; }
  // Frames received with a placed payload, and below those placed and on their way to `rank`.
  std::uint64_t placed_frames() const { return placed_frames_; }
  std::size_t places_in_use(int rank) const;

  // Advances the clock to the next arrival at a running rank; false if nothing is on its way.
  bool advance();
  // The time of that arrival; kForever if none comes by `until`.
  TimePoint next_arrival(TimePoint until = kForever);
  // Ranks with something new since the last call: a frame, a loss, room to send, or a wake().
  std::vector<int> take_woken();
  void wake(int rank);

  // Gives the rank's processor this much more work; frames it sends from now on wait for it.
  void work(int rank, Nanoseconds time);
  // When the processor has finished all its work: now or later.
  TimePoint free_at(int rank) const { return std::max(clock_.now(), ranks_[index(rank)].busy_until); }

  // Includes the rank's work and waiting since its last arrival, if it acts as soon as it is free.
  Account account(int rank) const;
  // Bytes sent so far to other hosts, with headers.
  std::uint64_t wire_bytes() const { return wire_bytes_; }
  std::uint64_t frames() const { return frames_; }

 private:
  friend class Endpoint;

  struct Pipe {
    double bytes_per_second = 0;
    Nanoseconds burst{0};  // an idle pipe passes this much of the next bytes in no time
    TimePoint free{};      // when it is free at its rate; earlier than the clock by the unused burst
  };
  // The pipes that a frame still has to pass.
  struct Route {
    static constexpr std::size_t kMost = 6;
    std::array<int, kMost> pipes;  // the next one last
    std::size_t count = 0;
    std::size_t crossing = 0;  // number of pipes after the latency
    void add(int pipe) { pipes[count++] = pipe; }
  };
  struct Flight {
    int from;
    int to;
    std::size_t size;
    std::vector<std::byte> bytes;  // size_only: data frames keep only the header
    Route route;
    TimePoint passed{};  // when the last byte passed the pipes so far
    bool has_left = false;
    bool has_landed = false;
    bool was_asked_for = false;   // its receiver was asked where the payload belongs
    std::byte* placed = nullptr;  // the receiver's answer
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
    std::vector<Flight*> coming;  // arrival begun but not received, in addition to arrived; empty with size_only
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
  // `rank` has ended the connection: the peer sees that after everything sent before.
  void end_connection(int rank, int peer);
  // The time that a rank's processor spends on the frame, at either end.
  Nanoseconds frame_work(int from, int to, std::size_t bytes) const;
  // The sender's processor has finished with the frame.
  void leave(Flight& flight, TimePoint now);
  // At time `now` the first byte reaches the flight's next pipe.
  void pass(Flight& flight, TimePoint now);
  void schedule(TimePoint time, Flight& flight);
  void land(Flight& flight, TimePoint begun);
  Event pop();
  void handle(const Event& event);
  static bool is_kept(const Flight& flight) { return flight.bytes.size() == flight.size; }
  // Handles all events due at the clock's time.
  void settle_due();

  const int world_;
  const LinkOptions options_;
  ManualClock clock_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<Pipe> pipes_;
  std::vector<int> host_out_, host_in_, rack_up_, rack_down_, local_;  // pipes; local_ by rank
  std::vector<Event> events_;                                          // a heap, earliest first
  std::uint64_t next_order_ = 0;
  std::vector<std::uint32_t> in_flight_;  // by link: sent but not received
  std::vector<TimePoint> last_landing_;   // by link
  std::vector<bool> dead_;
  std::vector<bool> stopped_;
  std::vector<bool> ended_;  // by link: the sender has ended the connection
  std::vector<int> ends_;    // by rank: number of connections ended by its peers
  std::vector<std::size_t> held_frames_;
  std::vector<int> woken_;
  std::deque<Flight> flights_;       // every Flight ever made
  std::vector<Flight*> unused_;      // the idle ones among them, reused with their memory
  std::vector<std::byte> outgoing_;  // the one reservation
  std::vector<std::byte> blank_;     // size_only: the bytes that every data frame points at
  std::uint64_t wire_bytes_ = 0;
  std::uint64_t frames_ = 0;
  std::uint64_t placed_frames_ = 0;
  Tap tap_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace qccl::sim
