#include "job/group_identity.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/cost/cost.h"
#include "transport/transport.h"

namespace qccl::comm {

ErrorInfo GroupIdentity::failure(ErrorKind kind, const std::string& what) const {
  return {.kind = kind,
          .message = fmt::format("QCCL rank {}, group '{}': {}", world_rank(), name, what),
          .rank = world_rank()};
}

Error GroupIdentity::invalid_argument(const std::string& operation, const std::string& what) const {
  ErrorInfo info = failure(ErrorKind::invalid_argument, fmt::format("{}: {}", operation, what));
  info.operation = operation;
  return Error(std::move(info));
}

RoundTrips measured(const Transport& transport, const GroupIdentity& group, const std::vector<int>& sites) {
  const auto site_of = [&](int rank) { return sites[static_cast<std::size_t>(rank)]; };
  RoundTrips found{.nearest = group.rank};
  for (int member = 0; member < group.size(); ++member) {
    if (member == group.rank) continue;
    const WorldRank peer(group.ranks[static_cast<std::size_t>(member)]);
    const double seconds = std::chrono::duration<double>(transport.round_trip(peer)).count();
    found.longest = std::max(found.longest, seconds);
    const bool is_near =
        sites.empty() ? seconds < plan::kDistantRoundTrip : site_of(peer.value()) == site_of(group.world_rank());
    if (!is_near) continue;
    found.longest_near = std::max(found.longest_near, seconds);
    found.nearest = std::min(found.nearest, member);
  }
  return found;
}

}  // namespace qccl::comm
