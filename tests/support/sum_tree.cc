#include "support/sum_tree.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "support/reference.h"

namespace qccl::testing {
namespace {

SumTree star(int owner, int world) {
  SumTree tree;
  tree.owner = owner;
  tree.parent.assign(static_cast<std::size_t>(world), owner);
  if (owner >= 0) tree.parent[static_cast<std::size_t>(owner)] = -1;
  return tree;
}

SumTree ring(int owner, int world) {
  SumTree tree = star(owner, world);
  for (int rank = 0; rank < world; ++rank) {
    if (rank != owner) tree.parent[static_cast<std::size_t>(rank)] = (rank + 1) % world;
  }
  return tree;
}

// Place p of a binary tree in order: p's parent is p with its lowest bit moved one up or, if that place
// does not exist, p without that bit.
SumTree binary(int which, int world) {
  const auto rank_at = [&](int place) {
    if (which == 0) return place;
    return world % 2 == 0 ? world - 1 - place : (place + 1) % world;
  };
  SumTree tree = star(rank_at(0), world);
  for (int place = 1; place < world; ++place) {
    int bit = 1;
    while (place % (2 * bit) == 0) bit *= 2;
    const bool has_next_bit = place / (2 * bit) % 2 == 1;
    const int above = place - bit + (has_next_bit ? 0 : 2 * bit);
    const int up = above < world ? above : place - bit;
    tree.parent[static_cast<std::size_t>(rank_at(place))] = rank_at(up);
  }
  return tree;
}

// A swap computes the same sum on two ranks: the tree counts the lower rank's. Ranks are in rank order, halves of
// halves, but the first ones are paired if the world size is not a power of two.
SumTree doubling(int world) {
  int places = 1;
  while (2 * places <= world) places *= 2;
  const int extra = world - places;
  const auto rank_at = [&](int place) { return place < extra ? 2 * place : place + extra; };
  SumTree tree = star(0, world);
  for (int pair = 0; pair < extra; ++pair) tree.parent[static_cast<std::size_t>(2 * pair + 1)] = 2 * pair;
  for (int place = 1; place < places; ++place) {
    const int bit = place & -place;
    tree.parent[static_cast<std::size_t>(rank_at(place))] = rank_at(place - bit);
  }
  return tree;
}

SumTree binomial(int root, int world) {
  SumTree tree = star(root, world);
  for (int place = 1; place < world; ++place) {
    int bit = 1;
    while (place % (2 * bit) == 0) bit *= 2;
    tree.parent[static_cast<std::size_t>((place + root) % world)] = (place - bit + root) % world;
  }
  return tree;
}

std::vector<std::vector<int>> hosts_of(const engine::ResolvedCall& call, int world) {
  std::vector<std::vector<int>> hosts;
  std::map<int, std::size_t> index;
  for (int rank = 0; rank < world; ++rank) {
    const int host = call.hosts.empty() ? 0 : call.hosts[static_cast<std::size_t>(rank)];
    if (index.try_emplace(host, hosts.size()).second) hosts.emplace_back();
    hosts[index[host]].push_back(rank);
  }
  return hosts;
}

// Puts each host's ranks below its `place`-th rank (modulo the host's size), raw, and those ranks below the home
// host's.
SumTree two_level(const std::vector<std::vector<int>>& hosts, std::size_t place, std::size_t home, int world) {
  SumTree tree = star(hosts[home][place], world);
  tree.raw.assign(static_cast<std::size_t>(world), false);
  for (const auto& members : hosts) {
    const int above = members[place % members.size()];
    for (const int rank : members) {
      if (rank == above) continue;
      tree.parent[static_cast<std::size_t>(rank)] = above;
      tree.raw[static_cast<std::size_t>(rank)] = true;
    }
  }
  return tree;
}

std::size_t host_of(const std::vector<std::vector<int>>& hosts, int rank) {
  std::size_t host = 0;
  while (std::find(hosts[host].begin(), hosts[host].end(), rank) == hosts[host].end()) ++host;
  return host;
}

std::vector<SumTree> hierarchical_pieces(const std::vector<std::vector<int>>& hosts, int world) {
  std::vector<SumTree> trees;
  for (int rank = 0; rank < world; ++rank) {
    const std::size_t home = host_of(hosts, rank);
    const auto at = std::find(hosts[home].begin(), hosts[home].end(), rank) - hosts[home].begin();
    trees.push_back(two_level(hosts, static_cast<std::size_t>(at), home, world));
  }
  return trees;
}

// With up to two hosts, the root's host adds for a reduce; otherwise all hosts share the work.
std::vector<SumTree> hierarchical(const engine::ResolvedCall& call, int world) {
  const auto hosts = hosts_of(call, world);
  if (call.collective == Collective::reduce_scatter) return hierarchical_pieces(hosts, world);
  const bool to_root = call.collective == Collective::reduce;
  const std::size_t root_host = host_of(hosts, call.root);
  std::size_t owners = hosts[0].size();
  for (const auto& members : hosts) owners = std::min(owners, members.size());
  std::vector<SumTree> trees;
  for (std::size_t owner = 0; owner < owners; ++owner) {
    for (std::size_t home = 0; home < hosts.size(); ++home) {
      const bool is_left_out = to_root && hosts.size() <= 2 && home != root_host;
      if (is_left_out) continue;
      trees.push_back(two_level(hosts, owner, home, world));
      trees.back().stays_on_host = home == root_host;
    }
  }
  return trees;
}

std::vector<SumTree> shapes(const engine::ResolvedCall& call, int world) {
  std::vector<SumTree> trees;
  const bool has_owners = call.collective == Collective::reduce_scatter || call.algorithm == Algorithm::sra ||
                          call.algorithm == Algorithm::pairwise;
  if (call.algorithm == Algorithm::hierarchical) {
    trees = hierarchical(call, world);
  } else if (call.algorithm == Algorithm::ring || has_owners) {
    for (int rank = 0; rank < world; ++rank) {
      trees.push_back(call.algorithm == Algorithm::ring ? ring(rank, world) : star(rank, world));
    }
  } else if (call.algorithm == Algorithm::tree) {
    trees = {binary(0, world), binary(1, world)};
  } else if (call.algorithm == Algorithm::recursive_doubling && call.compression.is_none()) {
    trees = {doubling(world)};
    trees[0].rounds_own = true;
  } else if (call.algorithm == Algorithm::binomial) {
    trees = {binomial(call.root, world)};
  } else {
    trees = {star(call.collective == Collective::reduce ? call.root : -1, world)};
  }
  return trees;
}

}  // namespace

std::vector<SumTree> sum_trees(const engine::ResolvedCall& call, int world) {
  auto trees = shapes(call, world);
  const bool scatters = call.collective == Collective::reduce_scatter;
  const std::uint64_t share = trees.size() == 1 ? call.count : chunk_share(call, static_cast<int>(trees.size()));
  std::uint64_t begin = 0;
  for (std::size_t chunk = 0; chunk < trees.size(); ++chunk) {
    SumTree& tree = trees[chunk];
    if (tree.raw.empty()) tree.raw.assign(static_cast<std::size_t>(world), false);
    tree.begin = begin;
    tree.end = scatters              ? begin + engine::piece_elements(call, static_cast<int>(chunk))
               : call.shares.empty() ? std::min(call.count, begin + share)
                                     : shared_chunk_end(call, chunk);
    begin = tree.end;
    const bool is_wanted_elsewhere =
        call.collective == Collective::all_reduce ||
        (call.collective == Collective::reduce && tree.owner != call.root && !tree.stays_on_host);
    tree.travels = is_wanted_elsewhere && tree.owner >= 0;
  }
  return trees;
}

}  // namespace qccl::testing
