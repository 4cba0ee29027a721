// How the ranks of a group lie on hosts, and which of them carry what between hosts.
//
// Each host divides a tensor evenly among its ranks. Where all hosts have as many ranks, the ranks of one place carry
// their share between hosts. On hosts with 8, 8 and 4 ranks, each of the last four carries the shares of two ranks of
// the others: the tensor falls into cells, which each have one owner on each host.
#pragma once

#include <cstddef>
#include <vector>

namespace qccl::comm {

struct HostLayout {
  // A part of a tensor, from unit `begin` to `end` of `units`.
  struct Cell {
    std::size_t begin;
    std::size_t end;
    std::vector<int> owners;  // a group rank of each host

    friend bool operator==(const Cell&, const Cell&) = default;
  };

  // `host_of`: the host of each group rank.
  HostLayout(const std::vector<int>& host_of, int rank);

  std::vector<std::vector<int>> hosts;  // their group ranks, ascending; hosts in the order of their first ranks
  std::size_t host = 0;                 // this rank's
  std::size_t place = 0;                // of this rank on its host
  std::size_t units = 1;                // what a tensor's elements are divided by
  std::vector<Cell> cells;              // in order; all of a tensor
  bool is_even = false;                 // all hosts have as many ranks
  bool is_regular = false;              // and these follow each other in the group

  const std::vector<int>& own_host() const { return hosts[host]; }
  // The units of this rank's share.
  std::size_t own_begin() const { return units / own_host().size() * place; }
  std::size_t own_end() const { return units / own_host().size() * (place + 1); }
  bool owns(const Cell& cell) const { return own_begin() <= cell.begin && cell.end <= own_end(); }

  // Some host has several ranks.
  bool has_inside() const { return units > 1; }
};

}  // namespace qccl::comm
