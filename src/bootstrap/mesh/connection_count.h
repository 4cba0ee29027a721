// How many TCP connections two ranks have.
//
// A connection has at most as many bytes on their way as the kernel buffers for it, so one alone does not fill a fast
// line with a long round trip; and some networks limit each connection to a part of the line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace qccl::bootstrap {

struct ConnectionPolicy {
  std::optional<int> told{};            // QCCL_CONNECTIONS, 1 to wire::kMaxConnections; without it, by distance
  double bytes_per_second = 0;          // of the line
  std::uint64_t send_buffer_bytes = 0;  // the most that the kernel buffers for a connection; 0: unknown
  int remote_peers = 1;                 // ranks on other hosts
  bool in_cloud = false;                // whose network limits each connection to a part of the line
};

// Whether a network card of this machine is that of a cloud which limits each connection: Amazon's or Google's.
// `folder`: the system's network interfaces.
bool is_in_limiting_cloud(const std::string& folder = "/sys/class/net");

// What this rank wants on a pair with that round trip (0: unknown); the pair gets the larger of its two ranks' numbers.
std::uint16_t wanted_connections(const ConnectionPolicy& policy, Nanoseconds round_trip);

}  // namespace qccl::bootstrap
