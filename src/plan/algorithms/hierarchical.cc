// Hierarchical all_reduce, reduce and broadcast: inside each host over shared memory, between hosts each element once
// per host. Chunk (o, h) belongs to the o-th rank of every host; the o-th rank of its home h sums it, or gives it to
// all hosts. If hosts are unequal, the number of owners per host is the size of the smallest host.
//
// Sums go up uncompressed inside a host (phase 0) and compressed between hosts (phase 1); the home adds the hosts'
// partial sums in host order. Results come back (phase 2; inside the other hosts of an all_reduce phase 3) as the bytes
// encoded at home, except to a reduce's root on the home's own host, which gets them uncompressed. Only the root
// encodes a broadcast's bytes.
#include "plan/algorithms/builder.h"
#include "plan/algorithms/hosts.h"

namespace qccl::plan {
namespace {

class Hierarchy {
 public:
  explicit Hierarchy(Builder& b)
      : b_(b),
        hosts_(b.request()),
        homes_(home_hosts(b.request(), hosts_)),
        host_(hosts_.host_of(b.rank())),
        root_host_(hosts_.host_of(b.root())),
        neighbours_(hosts_.others(host_, b.rank())) {}

  void build() {
    for (int chunk = 0; chunk < static_cast<int>(b_.ranges().size()); ++chunk) {
      switch (b_.request().collective) {
        case Collective::reduce: reduce(chunk); break;
        case Collective::broadcast: broadcast(chunk); break;
        default: all_reduce(chunk);
      }
    }
  }

 private:
  int home(int chunk) const { return homes_[static_cast<std::size_t>(chunk) % homes_.size()]; }
  int owner(int chunk, int host) const { return hosts_.members(host)[static_cast<std::size_t>(chunk) / homes_.size()]; }
  bool owns(int chunk) const { return b_.rank() == owner(chunk, host_); }
  // The chunk's owners on all hosts except two, which may be the same host.
  std::vector<int> owners_except(int chunk, int host, int other) const {
    std::vector<int> found;
    for (int each = 0; each < hosts_.count(); ++each) {
      if (each != host && each != other) found.push_back(owner(chunk, each));
    }
    return found;
  }

  // ---- upwards

  void add_host(std::vector<Step>& steps) const {
    for (const int rank : hosts_.members(host_)) {
      if (rank == b_.rank()) {
        steps.push_back({StepKind::local_reduce, 0, {}});
      } else {
        steps.push_back({StepKind::recv_reduce, 0, {rank}, false, /*raw=*/true});
      }
    }
  }

  // The lanes of a rank that does not sum the chunk at its home.
  void give(int chunk) {
    if (!owns(chunk)) {
      const int above = owner(chunk, host_);
      return b_.add_scratch(chunk, b_.begin_of(chunk), {{StepKind::send_input, 0, {above}, false, /*raw=*/true}});
    }
    const int above = owner(chunk, home(chunk));
    if (neighbours_.empty()) {
      return b_.add_scratch(chunk, b_.begin_of(chunk), {{StepKind::send_input, 1, {above}}});
    }
    std::vector<Step> steps;
    add_host(steps);
    steps.push_back({StepKind::send_sum, 1, {above}});
    b_.add_scratch(chunk, b_.begin_of(chunk), std::move(steps));
  }

  std::vector<Step> sum_at_home(int chunk) const {
    std::vector<Step> steps;
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == host_) {
        add_host(steps);
      } else {
        steps.push_back({StepKind::recv_reduce, 1, {owner(chunk, host)}});
      }
    }
    steps.push_back({StepKind::finish, 0, {}});
    return steps;
  }

  void all_reduce(int chunk) {
    const int at = home(chunk);
    if (owns(chunk) && host_ == at) {
      auto steps = sum_at_home(chunk);
      const auto owners = owners_except(chunk, at, at);
      if (!owners.empty()) steps.push_back({StepKind::send_result, 2, owners});
      if (!neighbours_.empty()) steps.push_back({StepKind::send_result, 3, neighbours_});
      return b_.add_in_place(chunk, std::move(steps));
    }
    give(chunk);
    if (!owns(chunk)) return b_.add_in_place(chunk, {{StepKind::recv_copy, 3, {owner(chunk, host_)}}});
    std::vector<Step> down{{StepKind::recv_copy, 2, {owner(chunk, at)}}};
    if (!neighbours_.empty()) down.push_back({StepKind::forward, 3, neighbours_});
    b_.add_in_place(chunk, std::move(down));
  }

  void reduce(int chunk) {
    const int summing = owner(chunk, home(chunk));
    const bool stays_raw = home(chunk) == root_host_;
    if (b_.rank() != summing) {
      give(chunk);
      if (b_.is_root()) b_.add_in_place(chunk, {{StepKind::recv_copy, 2, {summing}, false, stays_raw}});
      return;
    }
    auto steps = sum_at_home(chunk);
    if (b_.is_root()) return b_.add_in_place(chunk, std::move(steps));
    steps.push_back({StepKind::send_result, 2, {b_.root()}, false, stays_raw});
    b_.add_scratch(chunk, b_.begin_of(chunk), std::move(steps));
  }

  // ---- downwards

  // From the root to the chunk's owner at home, then to the owners on other hosts, then from each owner to its
  // neighbours; on the root's own host the root sends it to the owner.
  void broadcast(int chunk) {
    if (b_.is_root()) return give_away(chunk);
    const int at = home(chunk);
    const int above = owner(chunk, host_);
    if (host_ == root_host_) {
      if (above == b_.root()) return take(chunk, 0, b_.root(), {});
      return owns(chunk) ? take(chunk, 0, b_.root(), without_root()) : take(chunk, 1, above, {});
    }
    const std::uint16_t arrives = host_ == at ? 0 : 1;
    if (!owns(chunk)) return take(chunk, arrives + 1, above, {});
    if (host_ != at) return take(chunk, arrives, owner(chunk, at), neighbours_);
    auto below = owners_except(chunk, at, root_host_);
    below.insert(below.end(), neighbours_.begin(), neighbours_.end());
    take(chunk, arrives, b_.root(), std::move(below));
  }

  std::vector<int> without_root() const {
    std::vector<int> found;
    for (const int rank : neighbours_) {
      if (rank != b_.root()) found.push_back(rank);
    }
    return found;
  }

  void give_away(int chunk) {
    std::vector<int> below;
    if (home(chunk) != host_) below.push_back(owner(chunk, home(chunk)));
    if (owns(chunk)) {
      below.insert(below.end(), neighbours_.begin(), neighbours_.end());
    } else {
      below.push_back(owner(chunk, host_));
    }
    if (below.empty()) return;
    std::vector<Step> steps{{StepKind::send_input, 0, std::move(below)}};
    if (b_.request().compressed) steps.push_back({StepKind::local_copy, 0, {}, true});
    b_.add_in_place(chunk, std::move(steps));
  }

  void take(int chunk, int phase, int from, std::vector<int> below) {
    const auto arrives = static_cast<std::uint16_t>(phase);
    std::vector<Step> steps{{StepKind::recv_copy, arrives, {from}}};
    if (!below.empty()) steps.push_back({StepKind::forward, static_cast<std::uint16_t>(phase + 1), std::move(below)});
    b_.add_in_place(chunk, std::move(steps));
  }

  Builder& b_;
  const Hosts hosts_;
  const std::vector<int> homes_;
  const int host_;
  const int root_host_;
  const std::vector<int> neighbours_;
};

}  // namespace

// A broadcast's data is divided among the hosts other than the root's. With two hosts the root's host adds up a reduce,
// because the other host's data enters it once in any case. With three or more the hosts share the sum, so that not all
// of them send everything to the root's host.
std::vector<int> home_hosts(const Request& request, const Hosts& hosts) {
  const bool is_broadcast = request.collective == Collective::broadcast && hosts.count() > 1;
  const bool is_shared = request.collective == Collective::all_reduce || is_broadcast || hosts.count() > 2;
  const int root_host = hosts.host_of(request.root);
  if (!is_shared) return {root_host};
  std::vector<int> homes;
  for (int host = 0; host < hosts.count(); ++host) {
    if (!is_broadcast || host != root_host) homes.push_back(host);
  }
  return homes;
}

void build_hierarchical(Builder& builder) {
  switch (builder.request().collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter: return build_hierarchical_pieces(builder);
    default: Hierarchy(builder).build();
  }
}

}  // namespace qccl::plan
