#include "plan/cost/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "plan/algorithms/hosts.h"
#include "plan/plan.h"

namespace qccl::plan {
namespace {

// An algorithm with another order of addition must cost less than this share of the best one in rank order.
constexpr double kWorthwhile = 0.9;

// An all_reduce in one lane sends no slice before it has finished the one ahead, which its price ignores: one-shot, 4
// MiB between two hosts at 10 Gbit/s took twice as long as SRA.
constexpr std::uint64_t kMostBytesOfOneLane = 1024 * 1024;

// Number of ranks whose schedules are built for a price: all ranks of a small group, some of a large one, so that the
// first call of a size costs little.
constexpr int kMostRoles = 16;

bool has_pieces(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter ||
         collective == Collective::gather || collective == Collective::scatter || collective == Collective::all_to_all;
}

bool has(Collective collective, Algorithm algorithm) {
  const auto all = algorithms_of(collective);
  return std::find(all.begin(), all.end(), algorithm) != all.end();
}

bool adds_in_rank_order(Algorithm algorithm) { return algorithm == Algorithm::one_shot || algorithm == Algorithm::sra; }

bool has_one_lane(Algorithm algorithm) {
  return algorithm == Algorithm::one_shot || algorithm == Algorithm::recursive_doubling;
}

bool rounds_at_every_hop(Algorithm algorithm) {
  return algorithm == Algorithm::ring || algorithm == Algorithm::tree || algorithm == Algorithm::binomial ||
         algorithm == Algorithm::recursive_doubling;
}

// On one host hierarchical would not compress. With one rank per host it is a flat plan, better than the others only
// for a broadcast, in which the root owns no share.
bool gains_by_hosts(Collective collective, const std::vector<int>& hosts) {
  const Hosts layout(hosts, static_cast<int>(hosts.size()));
  const bool has_neighbours = layout.count() < static_cast<int>(hosts.size());
  return layout.count() > 1 && (has_neighbours || collective == Collective::broadcast);
}

// Why the algorithm may not be chosen; empty if it may.
std::string_view unsupported_reason(const SelectionKey& question, Algorithm algorithm, const std::vector<int>& hosts) {
  if (algorithm == Algorithm::hierarchical && !gains_by_hosts(question.collective, hosts)) {
    return "these hosts give it nothing to save";
  }
  if (!is_reduction(question.collective)) return {};
  const std::uint64_t elements = least_of_class(size_class(question.elements));
  const bool is_large = hosts.size() > 1 && elements * element_bytes(question.type) > kMostBytesOfOneLane;
  if (question.collective == Collective::all_reduce && has_one_lane(algorithm) && is_large) {
    return "one slice after the other: for 1 MiB at most";
  }
  const bool is_16_bit = question.type == DataType::float16 || question.type == DataType::bfloat16;
  if ((question.compressed || is_16_bit) && rounds_at_every_hop(algorithm)) return "rounds partial sums at every hop";
  const bool encodes_all = question.compressed && algorithm == Algorithm::one_shot;
  return encodes_all && has(question.collective, Algorithm::sra) ? "all would encode everything for all" : "";
}

Request request_of(const SelectionKey& question, Algorithm algorithm, const std::vector<int>& hosts) {
  const auto world = hosts.size();
  return {.collective = question.collective,
          .algorithm = algorithm,
          .world = static_cast<int>(world),
          .count = has_pieces(question.collective) ? question.elements / world : question.elements,
          .bucket_size = question.bucket_size,
          .slice_elements = question.slice_elements,
          .compressed = question.compressed,
          .hosts = hosts};
}

Candidate candidate(const SelectionKey& question, Algorithm algorithm, const std::vector<int>& hosts,
                    const MachineModel& links, int most_roles) {
  const auto bytes = static_cast<double>(element_bytes(question.type));
  const Encoding encoding{.element_bytes = bytes,
                          .encoded_bytes = question.compressed ? question.encoded_bytes : bytes};
  return {algorithm, price(request_of(question, algorithm, hosts), hosts, links, encoding, most_roles),
          unsupported_reason(question, algorithm, hosts)};
}

// The algorithms that may be chosen, or all.
std::vector<Candidate> candidates(const SelectionKey& question, const std::vector<int>& hosts,
                                  const MachineModel& links, bool all) {
  std::vector<Candidate> found;
  for (const Algorithm algorithm : algorithms_of(question.collective)) {
    if (!all && !unsupported_reason(question, algorithm, hosts).empty()) continue;
    found.push_back(candidate(question, algorithm, hosts, links, all ? kAllRanks : kMostRoles));
  }
  return found;
}

// The cheapest of the algorithms for which adds_in_rank_order() equals `usual`; null if there is none.
const Candidate* cheapest(const std::vector<Candidate>& all, bool usual) {
  const Candidate* best = nullptr;
  for (const Candidate& each : all) {
    if (adds_in_rank_order(each.algorithm) != usual) continue;
    if (best == nullptr || each.price.seconds < best->price.seconds) best = &each;
  }
  return best;
}

struct Best {
  const Candidate* usual;
  const Candidate* other;  // null if there is none

  double share() const { return other->price.seconds / usual->price.seconds; }
  const Candidate& taken() const { return other != nullptr && share() < kWorthwhile ? *other : *usual; }
};

Best best_of(const std::vector<Candidate>& found) { return {cheapest(found, true), cheapest(found, false)}; }

SelectionKey at_class(SelectionKey question) {
  question.elements = least_of_class(size_class(question.elements));
  return question;
}

std::string reason_of(const SelectionKey& question, int world, const Best& best) {
  if (world == 1) return "a single rank";
  const auto saved = [&] { return 100 * (1 - best.share()); };
  const bool takes_other = &best.taken() == best.other;
  if (takes_other) {
    return fmt::format("saves {:.0f} % of the time of {}", saved(), to_string(best.usual->algorithm));
  }
  const bool is_sum = is_reduction(question.collective);
  if (best.other != nullptr && best.share() < 1) {
    return fmt::format("{} would save {:.0f} % only{}", to_string(best.other->algorithm), saved(),
                       is_sum ? ", and add in another order than that of ranks" : "");
  }
  if (question.compressed && is_sum) return "compressed: an element is encoded twice at most, whatever the world";
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

Algorithm choose(const SelectionKey& question, const std::vector<int>& hosts, const MachineModel& links) {
  const auto all = algorithms_of(question.collective);
  if (hosts.size() == 1 || all.size() == 1) return all.front();
  return best_of(candidates(at_class(question), hosts, links, false)).taken().algorithm;
}

Choice explain(const SelectionKey& question, const std::vector<int>& hosts, const MachineModel& links) {
  const auto found = candidates(at_class(question), hosts, links, false);
  const Best best = best_of(found);
  return {hosts.size() == 1 ? found.front().algorithm : best.taken().algorithm,
          candidates(question, hosts, links, true), reason_of(question, static_cast<int>(hosts.size()), best)};
}

}  // namespace qccl::plan
