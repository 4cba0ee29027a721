// The options of a simulated network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace qccl::sim {

enum class CongestionControl { cubic, bbr };

// Processor time that a rank spends on each frame that it sends or receives.
struct FrameWork {
  Nanoseconds each{0};
  double bytes_per_second = 0;
};

// Rates are bytes per second; 0 is infinitely fast. Where TCP carries frames (has_packets()), its headers count too.
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
  // A host's queues, in bytes, before its way out and its way in: what comes beyond is dropped. 0: unlimited.
  std::uint64_t up_queue_bytes = 0;
  std::uint64_t down_queue_bytes = 0;
  double loss = 0;  // share of packets between hosts that are lost at random, from the seed
  // Of TCP, which carries the frames between hosts where there is a queue that drops, or loss.
  CongestionControl congestion = CongestionControl::cubic;
  std::size_t packet_bytes = 16 * 1024;  // the largest packet that it hands over: several segments
  FrameWork wire_work{};
  FrameWork local_work{};
  Nanoseconds tick{1};  // ranks see arrivals at multiples of this
  // Payloads of data frames are not kept: receivers find meaningless bytes after the header.
  bool size_only = false;

  bool has_packets() const { return up_queue_bytes > 0 || down_queue_bytes > 0 || loss > 0; }
};

}  // namespace qccl::sim
