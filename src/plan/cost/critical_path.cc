#include "plan/cost/critical_path.h"

#include <algorithm>

#include "plan/algorithms/binomial.h"
#include "plan/algorithms/doubling.h"
#include "plan/algorithms/hosts.h"
#include "plan/algorithms/tree.h"

namespace qccl::plan {
namespace {

class Ways {
 public:
  Ways(const Request& request, const std::vector<int>& hosts, const HopCosts& costs)
      : request_(request), costs_(costs), layout_(hosts, request.world) {}

  CriticalPath longest() const {
    if (request_.world == 1) return {};
    switch (built_for(request_.algorithm, request_.compressed)) {
      case Algorithm::sra: return request_.collective == Collective::broadcast ? shared_broadcast() : hops(2);
      case Algorithm::ring: return ring();
      case Algorithm::tree: return tree();
      case Algorithm::recursive_doubling: return doubling();
      case Algorithm::binomial: return binomial();
      case Algorithm::hierarchical: return hierarchical();
      default: return hops(1);
    }
  }

 private:
  bool is_local(int a, int b) const { return layout_.host_of(a) == layout_.host_of(b); }
  double cost(const CriticalPath& way) const { return way.wire_hops * costs_.wire + way.local_hops * costs_.local; }
  CriticalPath longer(const CriticalPath& a, const CriticalPath& b) const { return cost(a) < cost(b) ? b : a; }
  static CriticalPath plus(const CriticalPath& a, const CriticalPath& b) {
    return {a.wire_hops + b.wire_hops, a.local_hops + b.local_hops};
  }
  CriticalPath hop(int from, int to) const { return is_local(from, to) ? CriticalPath{0, 1} : CriticalPath{1, 0}; }
  // `count` hops between any ranks: over the wire if there is more than one host.
  CriticalPath hops(int count) const { return layout_.count() > 1 ? CriticalPath{count, 0} : CriticalPath{0, count}; }

  // From the root to one rank and from there to another.
  CriticalPath shared_broadcast() const {
    if (request_.world == 2) return hops(1);
    const int root_host = layout_.host_of(request_.root);
    for (int host = 0; host < layout_.count(); ++host) {
      if (host != root_host && ranks_of(host) < request_.world - 1) return {2, 0};
    }
    return layout_.count() == 1 ? CriticalPath{0, 2} : CriticalPath{1, 1};
  }

  // All edges of the ring except the one where the chunk starts; in an all_reduce then all edges again except the one
  // before its owner.
  CriticalPath ring() const {
    const int world = request_.world;
    CriticalPath around;
    for (int rank = 0; rank < world; ++rank) around = plus(around, hop(rank, (rank + 1) % world));
    const auto without = [&](int rank) {
      const CriticalPath edge = hop(rank, (rank + 1) % world);
      return CriticalPath{around.wire_hops - edge.wire_hops, around.local_hops - edge.local_hops};
    };
    CriticalPath longest;
    for (int owner = 0; owner < world; ++owner) {
      CriticalPath way = without(owner);
      if (request_.collective == Collective::all_reduce) way = plus(way, without((owner + world - 1) % world));
      longest = longer(longest, way);
    }
    return longest;
  }

  template <class Parent>
  CriticalPath deepest(const Parent& parent) const {
    CriticalPath longest;
    for (int rank = 0; rank < request_.world; ++rank) {
      CriticalPath way;
      for (int at = rank, above = parent(at); above >= 0; at = above, above = parent(at))
        way = plus(way, hop(at, above));
      longest = longer(longest, way);
    }
    return longest;
  }

  CriticalPath tree() const {
    CriticalPath longest;
    for (const int which : {0, 1}) {
      const CriticalPath up = deepest([&](int rank) { return tree_parent(rank, which, request_.world); });
      longest = longer(longest, plus(up, up));
    }
    return longest;
  }

  // For each place: from a rank without a place to it, through all swaps, and back.
  CriticalPath doubling() const {
    const Doubling doubling(request_.world);
    const auto partner_hop = [&](int place) {
      const int rank = doubling.rank_at(place);
      return place < doubling.extra() ? hop(rank, rank + 1) : CriticalPath{};
    };
    std::vector<CriticalPath> ways;
    for (int place = 0; place < doubling.places(); ++place) ways.push_back(partner_hop(place));
    for (int swap = 0; swap < doubling.swaps(); ++swap) {
      const std::vector<CriticalPath> before = ways;
      for (int place = 0; place < doubling.places(); ++place) {
        const int peer = place ^ 1 << swap;
        const CriticalPath from_peer =
            plus(before[static_cast<std::size_t>(peer)], hop(doubling.rank_at(peer), doubling.rank_at(place)));
        ways[static_cast<std::size_t>(place)] = longer(before[static_cast<std::size_t>(place)], from_peer);
      }
    }
    CriticalPath longest;
    for (int place = 0; place < doubling.places(); ++place) {
      longest = longer(longest, plus(ways[static_cast<std::size_t>(place)], partner_hop(place)));
    }
    return longest;
  }

  CriticalPath binomial() const {
    return deepest([&](int rank) { return binomial_parent(rank, request_.root, request_.world); });
  }

  // ---- hierarchical

  int ranks_of(int host) const { return static_cast<int>(layout_.members(host).size()); }
  bool any_has_neighbours(int but = -1) const {
    for (int host = 0; host < layout_.count(); ++host) {
      if (host != but && ranks_of(host) > 1) return true;
    }
    return false;
  }

  CriticalPath hierarchical() const {
    const int inside = any_has_neighbours() ? 1 : 0;
    const bool alone = layout_.count() == 1;
    switch (request_.collective) {
      case Collective::reduce: return reduce(inside);
      case Collective::broadcast: return broadcast();
      case Collective::all_gather:
      case Collective::reduce_scatter: return alone ? CriticalPath{0, 1} : CriticalPath{1, inside};
      default: return alone ? CriticalPath{0, 2} : CriticalPath{2, 2 * inside};
    }
  }

  CriticalPath reduce(int inside) const {
    const int root_host = layout_.host_of(request_.root);
    // On the root's host the sum of an owner other than the root takes another hop to the root.
    const bool goes_over = layout_.owners() > 1 || layout_.members(root_host).front() != request_.root;
    if (layout_.count() == 1) return {0, 2};
    if (layout_.count() == 2) {
      const bool up = any_has_neighbours(root_host);
      return longer({1, static_cast<int>(up) + static_cast<int>(goes_over)}, {0, 2 * static_cast<int>(goes_over)});
    }
    return {2, inside};
  }

  CriticalPath broadcast() const {
    const int root_host = layout_.host_of(request_.root);
    const CriticalPath at_home{0, std::min(ranks_of(root_host) - 1, 2)};
    if (layout_.count() == 1) return at_home;
    const int down = any_has_neighbours(root_host) ? 1 : 0;
    return longer({layout_.count() == 2 ? 1 : 2, down}, at_home);
  }

  const Request& request_;
  const HopCosts& costs_;
  const Hosts layout_;
};

}  // namespace

CriticalPath critical_path(const Request& request, const std::vector<int>& hosts, const HopCosts& costs) {
  return Ways(request, hosts, costs).longest();
}

}  // namespace qccl::plan
