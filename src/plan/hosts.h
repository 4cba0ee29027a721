// Which rank shares a host with which, as the hierarchical algorithm looks at it.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "plan/plan.h"

namespace qccl::plan {

class Hosts {
 public:
  // Without a layout all ranks share one host. Hosts are numbered by their first rank.
  explicit Hosts(const Request& request) {
    std::map<int, std::size_t> number;
    for (int rank = 0; rank < request.world; ++rank) {
      const int host = request.hosts.empty() ? 0 : request.hosts[static_cast<std::size_t>(rank)];
      const auto [found, is_new] = number.try_emplace(host, members_.size());
      if (is_new) members_.emplace_back();
      members_[found->second].push_back(rank);
    }
  }

  int count() const { return static_cast<int>(members_.size()); }
  // The host's ranks, in rank order.
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }
  int host_of(int rank) const {
    for (int host = 0; host < count(); ++host) {
      if (std::find(members(host).begin(), members(host).end(), rank) != members(host).end()) return host;
    }
    return -1;
  }
  // Ranks of each host that own chunks: as many as the smallest host has.
  int owners() const {
    std::size_t least = members_.front().size();
    for (const auto& members : members_) least = std::min(least, members.size());
    return static_cast<int>(least);
  }

 private:
  std::vector<std::vector<int>> members_;
};

}  // namespace qccl::plan
