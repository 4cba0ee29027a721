// A network in memory with a clock of its own: whole collectives of many ranks in one thread,
// repeatable from a seed.
//
// Each ordered pair of ranks is a link with a rate and a latency; a frame arrives at
//   max(now, when the sender's egress is free) + bytes / rate + latency + seeded jitter,
// never before an earlier frame of the same link. Faults: kill a rank, stop a rank, damage a frame.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/clock.h"
#include "transport/transport.h"

namespace qccl::sim {

struct LinkOptions {
  double bytes_per_second = 0;  // egress of a rank; 0 is infinitely fast
  Nanoseconds latency{0};
  Nanoseconds jitter{0};   // uniform in [0, jitter], from the seed
  std::size_t slots = 64;  // frames in flight per ordered pair before reserve() refuses
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
  // The rank neither sends nor takes anything any more; nobody is told.
  void stop(int rank);
  bool running(int rank) const;

  // Sees, and may damage, every frame at the moment it is sent.
  using Tap = std::function<void(int from, int to, Bytes frame)>;
  void set_tap(Tap tap) { tap_ = std::move(tap); }
  // Frames that `rank` received and has not released.
  std::size_t held_frames(int rank) const { return held_frames_[static_cast<std::size_t>(rank)]; }

  // Sets the clock to the next arrival; false if nothing is on its way.
  bool advance();

 private:
  friend class Endpoint;
  struct Flight {
    TimePoint arrival;
    std::vector<std::byte> bytes;
  };

  void send(int from, int to, std::vector<std::byte> bytes);
  std::deque<Flight>& link(int from, int to) { return links_[static_cast<std::size_t>(from * world_ + to)]; }

  const int world_;
  const LinkOptions options_;
  ManualClock clock_;
  std::mt19937_64 random_;
  std::vector<std::deque<Flight>> links_;
  std::vector<TimePoint> egress_free_;
  std::vector<bool> dead_;
  std::vector<bool> stopped_;
  std::vector<std::size_t> held_frames_;
  Tap tap_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace qccl::sim
