// Hierarchical plans: inside each host over shared memory, between two hosts each element once.
//
// All_reduce, reduce and broadcast divide the data. Chunk (o, h) belongs to the o-th rank of every host; the o-th rank
// of its home h sums it, or gives it to all hosts. If hosts are unequal, the number of owners per host is the size of
// the smallest host. Sums go up uncompressed inside a host (phase 0) and compressed between hosts (phase 1); the home
// adds the hosts' partial sums in host order. Results come back (phase 2; inside the other hosts of an all_reduce phase
// 3) as the bytes encoded at home, except to a reduce's root on the home's own host, which gets them uncompressed. Only
// the root encodes a broadcast's bytes.
//
// In all_gather and reduce_scatter a rank has an agent on every other host. In an all_gather the agent receives the
// rank's piece and forwards its bytes to the agent's neighbours. In a reduce_scatter it adds up its host's parts of the
// piece and sends the sum. The agents of a host's k-th rank are the k-th ranks of the other hosts, modulo their number
// of ranks.
#include <functional>

#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

// The hosts among which an all_reduce, reduce or broadcast divides its data. A broadcast's data is divided among the
// hosts other than the root's. With two hosts the root's host adds up a reduce, because the other host's data enters it
// once in any case. With three or more the hosts share the sum, so that not all of them send everything to the root's
// host.
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

int shared_chunks(const Request& request) {
  const Hosts hosts(request);
  return hosts.owners() * static_cast<int>(home_hosts(request, hosts).size());
}

// A rank on its host, and sums inside hosts and between them.
class HostPlan {
 protected:
  explicit HostPlan(Builder& b)
      : b_(b), hosts_(b.request()), host_(hosts_.host_of(b.rank())), neighbours_(hosts_.others(host_, b.rank())) {}

  // A lane for a chunk that is summed elsewhere: `above` sums this host's parts for `destination`.
  void give_part(int chunk, int above, int destination) {
    std::vector<Step> steps;
    if (above != b_.rank()) {
      steps.push_back({StepKind::send_input, 0, {above}, false, /*raw=*/true});
    } else if (neighbours_.empty()) {
      steps.push_back({StepKind::send_input, 1, {destination}});
    } else {
      add_host(steps);
      steps.push_back({StepKind::send_sum, 1, {destination}});
    }
    b_.add_scratch(chunk, b_.begin_of(chunk), std::move(steps));
  }

  // Sums the parts of all hosts in host order; `sender` gives the rank that sends its host's.
  std::vector<Step> sum(const std::function<int(int host)>& sender) const {
    std::vector<Step> steps;
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == host_) {
        add_host(steps);
      } else {
        steps.push_back({StepKind::recv_reduce, 1, {sender(host)}});
      }
    }
    steps.push_back({StepKind::finish, 0, {}});
    return steps;
  }

  void add_host(std::vector<Step>& steps) const {
    for (const int rank : hosts_.members(host_)) {
      if (rank == b_.rank()) {
        steps.push_back({StepKind::local_reduce, 0, {}});
      } else {
        steps.push_back({StepKind::recv_reduce, 0, {rank}, false, /*raw=*/true});
      }
    }
  }

  Builder& b_;
  const Hosts hosts_;
  const int host_;
  const std::vector<int> neighbours_;
};

class Chunks : HostPlan {
 public:
  explicit Chunks(Builder& b)
      : HostPlan(b), homes_(home_hosts(b.request(), hosts_)), root_host_(hosts_.host_of(b.root())) {}

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

  // From the root to the chunk's owner at home, then to the owners on other hosts, then from each owner to its
  // neighbours; on the root's own host the root sends it to the owner.
  void broadcast(int chunk) {
    if (b_.is_root()) return give_away(chunk);
    const int at = home(chunk);
    const int above = owner(chunk, host_);
    if (host_ == root_host_) {
      if (above == b_.root()) return take(chunk, 0, b_.root(), {});
      if (!owns(chunk)) return take(chunk, 1, above, {});
      auto below = neighbours_;
      std::erase(below, b_.root());
      return take(chunk, 0, b_.root(), std::move(below));
    }
    const std::uint16_t arrives = host_ == at ? 0 : 1;
    if (!owns(chunk)) return take(chunk, arrives + 1, above, {});
    if (host_ != at) return take(chunk, arrives, owner(chunk, at), neighbours_);
    auto below = owners_except(chunk, at, root_host_);
    below.insert(below.end(), neighbours_.begin(), neighbours_.end());
    take(chunk, arrives, b_.root(), std::move(below));
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

  void give(int chunk) { give_part(chunk, owner(chunk, host_), owner(chunk, home(chunk))); }
  std::vector<Step> sum_at_home(int chunk) const {
    return sum([&](int host) { return owner(chunk, host); });
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

  const std::vector<int> homes_;
  const int root_host_;
};

template <void (Chunks::*add)(int chunk)>
void build_chunks(Builder& b) {
  Chunks chunks(b);
  for (int chunk = 0; chunk < static_cast<int>(b.ranges().size()); ++chunk) (chunks.*add)(chunk);
}

class Pieces : HostPlan {
 public:
  explicit Pieces(Builder& b) : HostPlan(b) {}

  void all_gather() {
    auto below = own_agents();
    below.insert(below.end(), neighbours_.begin(), neighbours_.end());
    b_.add_own_piece(std::move(below));
    for (const int piece : b_.others()) take(piece);
  }

  void reduce_scatter() {
    for (const int piece : b_.others()) give_part(piece, agent(piece, host_), piece);
    b_.add(b_.rank(), b_.begin_of(b_.rank()), 0, sum([&](int host) { return agent(b_.rank(), host); }));
  }

 private:
  // On its own host a rank is its own agent.
  int agent(int rank, int host) const {
    if (host == hosts_.host_of(rank)) return rank;
    const auto& members = hosts_.members(host);
    return members[static_cast<std::size_t>(hosts_.index_of(rank)) % members.size()];
  }

  // This rank's agents on other hosts, the next host first.
  std::vector<int> own_agents() const {
    std::vector<int> agents;
    for (int distance = 1; distance < hosts_.count(); ++distance) {
      agents.push_back(agent(b_.rank(), (host_ + distance) % hosts_.count()));
    }
    return agents;
  }

  void take(int piece) {
    const int here = agent(piece, host_);
    if (here != b_.rank()) {
      const std::uint16_t arrives = here == piece ? 0 : 1;
      return b_.add(piece, 0, b_.begin_of(piece), {{StepKind::recv_copy, arrives, {here}}});
    }
    std::vector<Step> steps{{StepKind::recv_copy, 0, {piece}}};
    if (!neighbours_.empty()) steps.push_back({StepKind::forward, 1, neighbours_});
    b_.add(piece, 0, b_.begin_of(piece), std::move(steps));
  }
};

constexpr CollectiveBuilder kCollectives[] = {
    {Collective::all_reduce, build_chunks<&Chunks::all_reduce>},
    {Collective::reduce, build_chunks<&Chunks::reduce>},
    {Collective::broadcast, build_chunks<&Chunks::broadcast>},
    {Collective::all_gather, [](Builder& b) { Pieces(b).all_gather(); }},
    {Collective::reduce_scatter, [](Builder& b) { Pieces(b).reduce_scatter(); }},
};

// True if a host other than `except` has several ranks.
bool any_has_neighbours(const Hosts& hosts, int except) {
  for (int host = 0; host < hosts.count(); ++host) {
    if (host != except && hosts.size_of(host) > 1) return true;
  }
  return false;
}

// The hops between hosts (or sites) and the longest inside one.
struct Hops {
  CriticalPath across;
  CriticalPath inside;
};

CriticalPath reduce_path(const PathFinder& paths, const Hosts& hosts, const Hops& hop) {
  const int root = paths.request.root;
  const int root_host = hosts.host_of(root);
  // On the root's host the sum of an owner other than the root takes another hop to the root.
  const bool goes_over = hosts.owners() > 1 || hosts.members(root_host).front() != root;
  if (hosts.count() == 1) return 2 * hop.inside;
  if (hosts.count() > 2) return 2 * hop.across + hop.inside;
  const bool up = any_has_neighbours(hosts, root_host);
  return paths.longer(hop.across + (static_cast<int>(up) + static_cast<int>(goes_over)) * hop.inside,
                      2 * static_cast<int>(goes_over) * hop.inside);
}

CriticalPath broadcast_path(const PathFinder& paths, const Hosts& hosts, const Hops& hop) {
  const int root_host = hosts.host_of(paths.request.root);
  const CriticalPath at_home = std::min(hosts.size_of(root_host) - 1, 2) * hop.inside;
  if (hosts.count() == 1) return at_home;
  const int down = any_has_neighbours(hosts, root_host) ? 1 : 0;
  return paths.longer((hosts.count() == 2 ? 1 : 2) * hop.across + down * hop.inside, at_home);
}

CriticalPath longest_path(const PathFinder& paths) {
  const Hosts hosts(paths.request);
  const Hops hop{hosts.count() > 1 ? paths.hops(1) : CriticalPath{}, paths.hop_inside(hosts)};
  switch (paths.request.collective) {
    case Collective::reduce: return reduce_path(paths, hosts, hop);
    case Collective::broadcast: return broadcast_path(paths, hosts, hop);
    case Collective::all_reduce: return 2 * (hop.across + hop.inside);
    default: return hop.across + hop.inside;
  }
}

}  // namespace

extern const AlgorithmEntry kHierarchical = {
    .algorithm = Algorithm::hierarchical,
    .name = "hierarchical",
    .collectives = kCollectives,
    .critical_path = longest_path,
    .chunk_count = shared_chunks,
    .uses_hosts = true,
    .reads_mapped_buffers = true,
};

}  // namespace qccl::plan
