#include "plan/cost/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

// An algorithm with another order of addition must cost less than this share of the best one in rank order.
constexpr double kWorthwhile = 0.9;
constexpr double kWorthwhileFar = 0.95;  // between distant ranks, whose times are those of bytes and latencies

// An all_reduce of one chunk has one lane, which sends no slice before it has finished the one ahead. Its price ignores
// that: one-shot, 4 MiB between two hosts at 10 Gbit/s took twice as long as SRA.
constexpr std::uint64_t kMostBytesOfOneLane = 1024 * 1024;

// Number of ranks whose schedules are built for a price: all ranks of a small group, some of a large one, so that the
// first call of a size costs little.
constexpr int kMostRanks = 16;

// On one host a plan by hosts would not compress. With one rank per host it is a flat plan, better than the others only
// for a broadcast, in which the root owns no share. The same holds for sites.
bool gains_by(Collective collective, const std::vector<int>& groups) {
  const Hosts layout(groups, static_cast<int>(groups.size()));
  const bool has_neighbours = layout.count() < static_cast<int>(groups.size());
  return layout.count() > 1 && (has_neighbours || collective == Collective::broadcast);
}

// `groups`: of hierarchical plans.
Request request_of(const SelectionKey& key, Algorithm algorithm, const std::vector<int>& groups,
                   std::uint64_t window_bytes) {
  const auto world = groups.size();
  const double element = key.compressed ? key.encoded_bytes : static_cast<double>(element_bytes(key.type));
  const auto slice_bytes = static_cast<std::uint64_t>(static_cast<double>(key.slice_elements) * element);
  return {.collective = key.collective,
          .algorithm = algorithm,
          .world = static_cast<int>(world),
          .count = has_pieces(key.collective) ? key.elements / world : key.elements,
          .bucket_size = key.bucket_size,
          .slice_elements = key.slice_elements,
          .compressed = key.compressed,
          .lanes = lanes_of_window(window_bytes, static_cast<int>(world), slice_bytes),
          .hosts = groups};
}

// Why the algorithm may not be chosen; empty if it may.
std::string_view unsupported_reason(const SelectionKey& key, Algorithm algorithm, const std::vector<int>& groups,
                                    std::uint64_t window_bytes) {
  const AlgorithmEntry& entry = entry_of(algorithm);
  const CollectiveBuilder& builder = *builder_of(key.collective, algorithm);
  if (builder.only_on_request) return "not measured against the others: only on request";
  if (entry.uses_hosts && !gains_by(key.collective, groups)) return "saves nothing on these hosts";
  if (!is_reduction(key.collective)) return {};
  const std::uint64_t elements = least_of_class(size_class(key.elements));
  const bool is_large = groups.size() > 1 && elements * element_bytes(key.type) > kMostBytesOfOneLane;
  if (key.collective == Collective::all_reduce && is_large &&
      chunk_count(request_of(key, algorithm, groups, window_bytes)) == 1) {
    return "sends one slice after another: for 1 MiB at most";
  }
  const bool is_16_bit = key.type == DataType::float16 || key.type == DataType::bfloat16;
  if ((key.compressed || is_16_bit) && entry.rounds_at_every_hop) return "rounds partial sums at every hop";
  const bool encodes_all = key.compressed && algorithm == Algorithm::one_shot && window_bytes == 0;
  return encodes_all && has_algorithm(key.collective, Algorithm::sra) ? "every rank would encode and decode everything"
                                                                      : "";
}

Encoding encoding_of(const SelectionKey& key) {
  const auto bytes = static_cast<double>(element_bytes(key.type));
  return {.element_bytes = bytes, .encoded_bytes = key.compressed ? key.encoded_bytes : bytes};
}

// The algorithms that may be chosen, or all.
std::vector<Candidate> candidates(const SelectionKey& key, const Layout& layout, const MachineModel& links, bool all) {
  const std::vector<int>& groups = hierarchy_of(key, layout, links);
  std::vector<Candidate> found;
  for (const Algorithm algorithm : algorithms_of(key.collective)) {
    const std::string_view reason = unsupported_reason(key, algorithm, groups, links.window_bytes);
    if (!all && !reason.empty()) continue;
    const Request request = request_of(key, algorithm, groups, links.window_bytes);
    const int most_ranks = all ? kAllRanks : kMostRanks;
    found.push_back({algorithm, price(request, layout, links, encoding_of(key), most_ranks), reason});
  }
  return found;
}

// The cheapest of the algorithms that add in rank order, or of the others; null if there is none.
const Candidate* cheapest(Collective collective, const std::vector<Candidate>& all, bool in_rank_order) {
  const Candidate* best = nullptr;
  for (const Candidate& each : all) {
    if (adds_in_rank_order(collective, each.algorithm) != in_rank_order) continue;
    if (best == nullptr || each.price.seconds < best->price.seconds) best = &each;
  }
  return best;
}

struct Best {
  const Candidate* in_rank_order;
  const Candidate* other;  // null if there is none
  double worthwhile;

  double share() const { return other->price.seconds / in_rank_order->price.seconds; }
  const Candidate& taken() const { return other != nullptr && share() < worthwhile ? *other : *in_rank_order; }
};

Best best_of(Collective collective, const std::vector<Candidate>& found, const MachineModel& links) {
  return {cheapest(collective, found, true), cheapest(collective, found, false),
          links.window_bytes > 0 ? kWorthwhileFar : kWorthwhile};
}

SelectionKey at_class(SelectionKey key) {
  key.elements = least_of_class(size_class(key.elements));
  return key;
}

std::string reason_of(const SelectionKey& key, int world, const Best& best) {
  if (world == 1) return "a single rank";
  const auto saved = [&] { return 100 * (1 - best.share()); };
  const bool takes_other = &best.taken() == best.other;
  if (takes_other) {
    return fmt::format("saves {:.0f} % of the time of {}", saved(), to_string(best.in_rank_order->algorithm));
  }
  const bool is_sum = is_reduction(key.collective);
  if (best.other != nullptr && best.share() < 1) {
    return fmt::format("{} would save {:.0f} % only{}", to_string(best.other->algorithm), saved(),
                       is_sum ? ", and add in another order than that of ranks" : "");
  }
  if (key.compressed && is_sum) return "compressed: an element is encoded twice at most, whatever the world";
  return "predicted to be the fastest";
}

}  // namespace

int size_class(std::uint64_t elements) {
  if (elements < 4) return static_cast<int>(elements);
  const int exponent = std::bit_width(elements) - 1;
  return 4 * (exponent - 1) + static_cast<int>(elements >> (exponent - 2) & 3);
}

std::uint64_t least_of_class(int size_class) {
  if (size_class < 4) return static_cast<std::uint64_t>(size_class);
  return (4 + static_cast<std::uint64_t>(size_class % 4)) << (size_class / 4 - 1);
}

const std::vector<int>& hierarchy_of(const SelectionKey& key, const Layout& layout, const MachineModel& links) {
  const bool may_use_sites = !layout.sites.empty() && has_algorithm(key.collective, Algorithm::hierarchical) &&
                             gains_by(key.collective, layout.sites);
  if (!may_use_sites) return layout.hosts;
  if (!gains_by(key.collective, layout.hosts)) return layout.sites;
  const auto seconds = [&](const std::vector<int>& groups) {
    const Request request = request_of(at_class(key), Algorithm::hierarchical, groups, links.window_bytes);
    return price(request, layout, links, encoding_of(key), kMostRanks).seconds;
  };
  return seconds(layout.sites) < seconds(layout.hosts) ? layout.sites : layout.hosts;
}

CostEstimate predict(const SelectionKey& key, Algorithm algorithm, const Layout& layout, const MachineModel& links) {
  const Request request = request_of(key, algorithm, hierarchy_of(key, layout, links), links.window_bytes);
  return price(request, layout, links, encoding_of(key), kMostRanks);
}

double message_seconds(double bytes, bool inside_host, const MachineModel& links) {
  const LinkCost& link = inside_host ? links.local : links.wire;
  const double rate = inside_host ? links.local.rank_rate : links.wire_rate * links.wire_efficiency;
  // A large message waits for its receiver's grant.
  const double latencies = bytes > Encoding{}.eager_bytes ? 2 : 1;
  return latencies * link.latency + (rate > 0 ? bytes / rate : 0);
}

Algorithm choose(const SelectionKey& key, const Layout& layout, const MachineModel& links) {
  const auto all = algorithms_of(key.collective);
  if (layout.hosts.size() == 1 || all.size() == 1) return all.front();
  return best_of(key.collective, candidates(at_class(key), layout, links, false), links).taken().algorithm;
}

Choice explain(const SelectionKey& key, const Layout& layout, const MachineModel& links) {
  const auto found = candidates(at_class(key), layout, links, false);
  const Best best = best_of(key.collective, found, links);
  const auto world = layout.hosts.size();
  return {world == 1 ? found.front().algorithm : best.taken().algorithm, candidates(key, layout, links, true),
          reason_of(key, static_cast<int>(world), best)};
}

}  // namespace qccl::plan
