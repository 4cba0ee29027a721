#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "plan/plan.h"

namespace qccl::plan {

// The placement of ranks on hosts.
class Hosts {
 public:
  // Without a layout all ranks share one host. Hosts are numbered in the order of their first ranks.
  explicit Hosts(const Request& request) : Hosts(request.hosts, request.world) {}
  Hosts(const std::vector<int>& host_of_rank, int world) {
    std::map<int, int> number;
    for (int rank = 0; rank < world; ++rank) {
      const int host = host_of_rank.empty() ? 0 : host_of_rank[static_cast<std::size_t>(rank)];
      const auto [found, is_new] = number.try_emplace(host, count());
      if (is_new) members_.emplace_back();
      auto& members = members_[static_cast<std::size_t>(found->second)];
      host_of_.push_back(found->second);
      index_of_.push_back(static_cast<int>(members.size()));
      members.push_back(rank);
    }
  }

  int count() const { return static_cast<int>(members_.size()); }
  // The host's ranks, in rank order.
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }
  int size_of(int host) const { return static_cast<int>(members(host).size()); }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  // Index of the rank among its host's ranks.
  int index_of(int rank) const { return index_of_[static_cast<std::size_t>(rank)]; }
  // Ranks of each host that own chunks: as many as the smallest host has.
  int owners() const {
    std::size_t least = members_.front().size();
    for (const auto& members : members_) least = std::min(least, members.size());
    return static_cast<int>(least);
  }
  // The host's ranks except this one.
  std::vector<int> others(int host, int rank) const {
    std::vector<int> found = members(host);
    std::erase(found, rank);
    return found;
  }

 private:
  std::vector<std::vector<int>> members_;
  std::vector<int> host_of_;
  std::vector<int> index_of_;
};

// The hosts and the sites of all ranks.
struct Places {
  Places(const Layout& layout, int world) : hosts(layout.hosts, world), sites(layout.sites, world) {}

  Hosts hosts;
  Hosts sites;  // one: the layout has none

  bool are_local(int a, int b) const { return hosts.host_of(a) == hosts.host_of(b); }
  // On different hosts of one site.
  bool are_near(int a, int b) const {
    return sites.count() > 1 && sites.host_of(a) == sites.host_of(b) && !are_local(a, b);
  }
};

}  // namespace qccl::plan
