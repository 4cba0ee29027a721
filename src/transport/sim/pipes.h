// What frames and packets pass on their way: pipes, each with a rate and a queue, and the route between two ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/sim/network_options.h"

namespace qccl::sim {

Nanoseconds transmission_time(double bytes, double bytes_per_second);

// Between ranks of two hosts.
Nanoseconds latency_between(const NetworkOptions& options, int from, int to);

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
  // How long the bytes take through all pipes of the route while nothing else passes, without its latency.
  Nanoseconds idle_time(const Route& route, std::size_t bytes) const;
  // False if the queue before the pipe would drop the bytes. An idle pipe takes a packet of any size.
  bool has_room(int pipe, std::size_t bytes, TimePoint now) const;

 private:
  struct Pipe {
    double bytes_per_second = 0;
    Nanoseconds burst{0};    // an idle pipe passes this much of the next bytes in no time
    double queue_bytes = 0;  // 0: unlimited
    TimePoint free{};        // when it is free at its rate; earlier than the clock by the unused burst
  };
  struct Location {
    int host = 0;
    int slow_pipe = -1;  // -1: none
  };

  int host_of(int rank) const { return locations_[static_cast<std::size_t>(rank)].host; }
  int add(double bytes_per_second, double burst_bytes = 0, std::uint64_t queue_bytes = 0);

  const int hosts_per_rack_;
  const int connections_;
  int first_flow_ = -1;              // index in pipes_ of the first connection; -1: they have no cap
  std::vector<Location> locations_;  // by rank
  std::vector<Pipe> pipes_;
  std::vector<int> host_out_, host_in_, rack_up_, rack_down_, local_;  // indices in pipes_; local_ by rank
};

}  // namespace qccl::sim
