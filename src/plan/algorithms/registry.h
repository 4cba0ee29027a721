// The list of algorithms (the only source for plans, the choice of algorithm, the checker, `qccl plan` and the tests),
// and what an algorithm is made with: the builder of a schedule, the hosts, the critical path.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace qccl::plan {

// Makes one rank's schedule.
class Builder {
 public:
  Builder(const Request& request, int rank) : request_(request), rank_(rank), chunks_(chunks(request)) {}

  const Request& request() const { return request_; }
  int rank() const { return rank_; }
  int world() const { return request_.world; }
  int root() const { return request_.root; }
  bool is_root() const { return rank_ == request_.root; }
  const std::vector<Range>& ranges() const { return chunks_; }
  std::uint64_t begin_of(int chunk) const { return chunks_[static_cast<std::size_t>(chunk)].begin; }

  // Every other rank, starting after this one, so that ranks do not all send to rank 0 first.
  std::vector<int> others() const;

  // A lane for a whole chunk, unless the chunk is empty.
  void add(int chunk, std::uint64_t input_begin, std::uint64_t output_begin, std::vector<Step> steps) {
    add_whole({.input_begin = input_begin, .output_begin = output_begin, .steps = std::move(steps)}, chunk);
  }
  // A chunk that begins at the same element in input and output.
  void add_in_place(int chunk, std::vector<Step> steps) {
    add(chunk, begin_of(chunk), begin_of(chunk), std::move(steps));
  }
  // All chunks, with the same steps.
  void add_in_every_lane(const std::vector<Step>& steps) {
    for (int chunk = 0; chunk < static_cast<int>(chunks_.size()); ++chunk) add_in_place(chunk, steps);
  }
  // A lane that writes nothing to the caller's output: it only sends, or adds for others.
  void add_scratch(int chunk, std::uint64_t input_begin, std::vector<Step> steps) {
    add_whole({.input_begin = input_begin, .steps = std::move(steps), .scratch = true}, chunk);
  }
  // An all_gather's own piece: copied to the output, and sent to `peers` in phase 0.
  void add_own_piece(std::vector<int> peers);
  void add(Lane lane) { schedule_.lanes.push_back(std::move(lane)); }
  int last_lane() const { return static_cast<int>(schedule_.lanes.size()) - 1; }

  // Steps that accumulate all ranks' slices in rank order, and `finish`; the other ranks' arrive in phase 0.
  // `quantize_own`: this rank's part as its peers would decode it.
  std::vector<Step> reduce_steps(bool quantize_own = false) const;

  RankSchedule take() { return std::move(schedule_); }

 private:
  void add_whole(Lane lane, int chunk);

  const Request& request_;
  const int rank_;
  const std::vector<Range> chunks_;
  RankSchedule schedule_;
};

// An all_to_all whose pieces are sent at once or one after another.
void build_all_to_all(Builder& builder, bool one_at_a_time);

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

// The critical path of a single slice through a plan, which is the time of a small operation whatever its bytes: the
// number of consecutive frames between sites (without sites, between hosts), inside hosts, and between hosts of a site.
struct CriticalPath {
  int wire_hops = 0;
  int local_hops = 0;
  int near_hops = 0;
  friend bool operator==(const CriticalPath&, const CriticalPath&) = default;
  friend CriticalPath operator+(const CriticalPath& a, const CriticalPath& b) {
    return {a.wire_hops + b.wire_hops, a.local_hops + b.local_hops, a.near_hops + b.near_hops};
  }
  friend CriticalPath operator*(int times, const CriticalPath& path) {
    return {times * path.wire_hops, times * path.local_hops, times * path.near_hops};
  }
};

// The cost of a hop, to tell which path is the longest.
struct HopCosts {
  double wire, local, near;
};

// Measures an algorithm's paths between ranks. References its arguments.
struct PathFinder {
  const Request& request;
  const Places& places;
  const HopCosts& costs;

  CriticalPath longer(const CriticalPath& a, const CriticalPath& b) const { return cost(a) < cost(b) ? b : a; }
  CriticalPath hop(int from, int to) const {
    if (places.are_local(from, to)) return {.local_hops = 1};
    return places.are_near(from, to) ? CriticalPath{.near_hops = 1} : CriticalPath{.wire_hops = 1};
  }
  // `count` hops between any ranks: over the wire if there is more than one host.
  CriticalPath hops(int count) const {
    return places.hosts.count() > 1 ? CriticalPath{.wire_hops = count} : CriticalPath{.local_hops = count};
  }
  // The longest hop inside one of these groups of ranks; none if every rank is alone.
  CriticalPath hop_inside(const Hosts& groups) const;
  // The longest hop from `rank` to another that is not `except`; none if there is none.
  CriticalPath hop_from(int rank, int except) const;
  // The longest path from a rank to the root of a tree. `parent` gives the rank above, -1 for the root.
  CriticalPath deepest(const std::function<int(int rank)>& parent) const;
  double cost(const CriticalPath& path) const {
    return path.wire_hops * costs.wire + path.local_hops * costs.local + path.near_hops * costs.near;
  }
};

// Does not build the plan: takes time linear in the world (trees: times its logarithm). Assumes that all chunks have
// elements.
CriticalPath critical_path(const Request& request, const Places& places, const HopCosts& costs);

// Adds the lanes of the builder's rank.
using BuildFunction = void(Builder& builder);

struct CollectiveBuilder {
  Collective collective;
  BuildFunction* build;
};

// One algorithm. Lives in the file named after it.
struct AlgorithmEntry {
  Algorithm algorithm;
  std::span<const CollectiveBuilder> collectives;
  // For one slice of the request's collective. Assumes at least two ranks, and that all chunks have elements.
  CriticalPath (*critical_path)(const PathFinder& paths);
  // Into how many chunks an all_reduce, reduce or broadcast divides its data; null: it does not.
  int (*chunk_count)(const Request& request) = nullptr;
  // Sums are rank 0 + rank 1 + ..., in no other order.
  bool adds_in_rank_order = false;
  // Compressed sums, and sums of 16-bit floats, are rounded at every hop, so they are chosen only on request.
  bool rounds_at_every_hop = false;
  // The plan depends on the hosts of the ranks.
  bool uses_hosts = false;
  // An all_reduce in mapped buffers may read inputs where they lie: inside a host one rank alone reads each slice, and
  // overwrites it only with a sum that every result follows from.
  bool reads_mapped_buffers = false;
  // Compressed calls take this algorithm instead.
  std::optional<Algorithm> compressed_as = std::nullopt;
};

// In the order in which they are tried and shown to users.
std::span<const AlgorithmEntry* const> algorithm_list();
// The algorithm must not be automatic.
const AlgorithmEntry& entry_of(Algorithm algorithm);
// Null if the collective does not have the algorithm.
BuildFunction* builder_of(Collective collective, Algorithm algorithm);

// The chunks of algorithms whose chunks have no owners: Request::lanes, at most one for each slice of an all_reduce.
int lanes_of_all_reduce(const Request& request);

// Each chunk of a sum is complete on one rank first.
inline bool has_owners(const AlgorithmEntry& entry) {
  return entry.chunk_count != nullptr && entry.chunk_count != lanes_of_all_reduce;
}

// The number of chunks into which the request divides an all_reduce, reduce or broadcast.
int chunk_count(const Request& request);

}  // namespace qccl::plan
