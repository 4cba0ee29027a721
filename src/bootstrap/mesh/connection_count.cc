#include "bootstrap/mesh/connection_count.h"

#include <algorithm>
#include <cmath>

#include "base/distance.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

// By distance alone, a pair has at most so many, and a rank to all its peers together about twice as many.
constexpr int kMostOfAPair = 8;
constexpr int kMostOfARank = 16;
// The kernel fills about half of a buffer, because the other half is kept for its own records.
constexpr double kFilledPart = 0.5;

}  // namespace

std::uint16_t wanted_connections(const ConnectionPolicy& policy, Nanoseconds round_trip) {
  if (policy.told) return static_cast<std::uint16_t>(*policy.told);
  if (round_trip < kDistantRoundTrip || policy.send_buffer_bytes == 0) return 1;
  const double bytes_on_their_way = policy.bytes_per_second * std::chrono::duration<double>(round_trip).count();
  const double needed = std::ceil(bytes_on_their_way / (kFilledPart * static_cast<double>(policy.send_buffer_bytes)));
  const int most = std::clamp(kMostOfARank / std::max(1, policy.remote_peers), 1, kMostOfAPair);
  return static_cast<std::uint16_t>(std::clamp(needed, 1.0, static_cast<double>(most)));
}

}  // namespace qccl::bootstrap
