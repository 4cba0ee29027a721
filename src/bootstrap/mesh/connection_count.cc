#include "bootstrap/mesh/connection_count.h"

#include <algorithm>
#include <cmath>

#include "base/distance.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

// Where each connection may be limited: in a cloud and on any long line, whose middle nobody here knows.
constexpr int kFewest = 4;
// By distance alone, a pair has at most so many, and a rank to all its peers together about twice as many.
constexpr int kMostOfAPair = 8;
constexpr int kMostOfARank = 16;
// The kernel fills about half of a buffer, because the other half is kept for its own records.
constexpr double kFilledPart = 0.5;

}  // namespace

bool is_in_limiting_cloud(const std::string& folder) {
  auto interfaces = os::list_interfaces("");
  return interfaces.ok() && std::ranges::any_of(*interfaces, [&](const os::Interface& each) {
           const std::string vendor = os::system_value(folder + "/" + each.name + "/device/vendor").value_or("");
           return vendor == "0x1d0f" || vendor == "0x1ae0";  // Amazon, Google
         });
}

std::uint16_t wanted_connections(const ConnectionPolicy& policy, Nanoseconds round_trip) {
  if (policy.told) return static_cast<std::uint16_t>(*policy.told);
  const bool is_distant = round_trip >= kDistantRoundTrip;
  if (!is_distant && !policy.in_cloud) return 1;
  const double bytes_on_their_way = policy.bytes_per_second * std::chrono::duration<double>(round_trip).count();
  const double filled = kFilledPart * static_cast<double>(policy.send_buffer_bytes);
  const double needed = is_distant && filled > 0 ? std::ceil(bytes_on_their_way / filled) : 0;
  const int most = std::clamp(kMostOfARank / std::max(1, policy.remote_peers), 1, kMostOfAPair);
  return static_cast<std::uint16_t>(std::min<double>(std::max<double>(needed, kFewest), most));
}

}  // namespace qccl::bootstrap
