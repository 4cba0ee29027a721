// The options of a simulated network, and its pipes.
//
// A frame passes pipes, each with a rate and a queue: out of its host, over the racks' uplinks if it leaves its rack,
// into the target host. Between ranks of one host only the local rate applies.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/clock.h"

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

Nanoseconds transmission_time(double bytes, double bytes_per_second);

// The pipes that a frame still has to pass.
struct Route {
  static constexpr std::size_t kMost = 6;
  std::array<int, kMost> pipes{};  // the next one last
  std::size_t count = 0;
  std::size_t after_latency = 0;  // number of pipes at the target's end

  void add(int pipe) { pipes[count++] = pipe; }
};

class Pipes {
 public:
  Pipes(int world, const NetworkOptions& options);

  bool is_local(int from, int to) const { return host_of(from) == host_of(to); }
  Route route(int from, int to) const;

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
  std::vector<Location> locations_;  // by rank
  std::vector<Pipe> pipes_;
  std::vector<int> host_out_, host_in_, rack_up_, rack_down_, local_;  // indices in pipes_; local_ by rank
};

}  // namespace qccl::sim
