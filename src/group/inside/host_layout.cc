#include "group/inside/host_layout.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace qccl::comm {
namespace {

std::vector<std::vector<int>> hosts_of(const std::vector<int>& host_of) {
  std::vector<std::vector<int>> hosts;
  std::vector<int> names;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto index = static_cast<std::size_t>(std::ranges::find(names, host_of[rank]) - names.begin());
    if (index == names.size()) {
      names.push_back(host_of[rank]);
      hosts.emplace_back();
    }
    hosts[index].push_back(static_cast<int>(rank));
  }
  return hosts;
}

bool are_even(const std::vector<std::vector<int>>& hosts) {
  return std::ranges::all_of(hosts, [&](const auto& host) { return host.size() == hosts.front().size(); });
}

bool follow_each_other(const std::vector<std::vector<int>>& hosts) {
  int next = 0;
  for (const std::vector<int>& host : hosts) {
    for (const int rank : host) {
      if (rank != next++) return false;
    }
  }
  return true;
}

// Cells end wherever a share of some host ends.
std::vector<HostLayout::Cell> cells_of(const std::vector<std::vector<int>>& hosts, std::size_t units) {
  std::set<std::size_t> ends;
  for (const std::vector<int>& host : hosts) {
    for (std::size_t place = 1; place <= host.size(); ++place) ends.insert(units / host.size() * place);
  }
  std::vector<HostLayout::Cell> cells;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    HostLayout::Cell cell{begin, end, {}};
    for (const std::vector<int>& host : hosts) cell.owners.push_back(host[begin * host.size() / units]);
    cells.push_back(std::move(cell));
    begin = end;
  }
  return cells;
}

}  // namespace

HostLayout::HostLayout(const std::vector<int>& host_of, int rank) : hosts(hosts_of(host_of)) {
  for (std::size_t index = 0; index < hosts.size(); ++index) {
    const auto found = std::ranges::find(hosts[index], rank);
    units = std::lcm(units, hosts[index].size());
    if (found == hosts[index].end()) continue;
    host = index;
    place = static_cast<std::size_t>(found - hosts[index].begin());
  }
  cells = cells_of(hosts, units);
  is_even = are_even(hosts);
  is_regular = is_even && follow_each_other(hosts);
}

}  // namespace qccl::comm
