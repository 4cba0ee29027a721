#include "tools/plan/plan_inside.h"

#include <cmath>

#include "base/text.h"

namespace qccl::tools {
namespace {

// Bytes that a rank sends inside its host, and how often the ranks of a host meet for it.
struct InsideWork {
  double bytes;
  double meetings;
};

InsideWork work_of(const PlanLayout& layout, Collective collective, double bytes) {
  const double others = 1 - 1.0 / ranks_a_host(layout);
  if (collective == Collective::all_reduce) return {2 * others * bytes, 2};
  return {others * bytes, static_cast<double>(layout.host_count())};
}

// What a host's line carries each way, uncompressed.
double line_bytes(const PlanLayout& layout, Collective collective, double bytes) {
  const double others = 1 - 1.0 / layout.host_count();
  return (collective == Collective::all_reduce ? 2 : 1) * others * bytes;
}

double least_uncompressed(const PlanLayout& layout, Collective collective, std::uint64_t bytes) {
  const double rate = layout.links.wire_rate * layout.links.wire_efficiency;
  return inside_seconds(layout, collective, bytes) + line_bytes(layout, collective, static_cast<double>(bytes)) / rate;
}

plan::Choice choice_between(const PlanLayout& layout, Collective collective, std::uint64_t bytes) {
  const PlanLayout between = between_hosts(layout, collective);
  const std::uint64_t share = bytes / static_cast<std::uint64_t>(ranks_a_host(layout));
  return plan::explain(selection_key(between, collective, share), between.places(), between.links);
}

double seconds_between(const plan::Choice& choice) {
  for (const plan::Candidate& each : choice.candidates) {
    if (each.algorithm == choice.algorithm) return each.price.seconds;
  }
  return 0;
}

double seconds_at(PlanLayout layout, double rate, Collective collective, std::uint64_t bytes) {
  layout.links.wire_rate = layout.line_rate = rate;
  return inside_seconds(layout, collective, bytes) + seconds_between(choice_between(layout, collective, bytes));
}

// Whether compression saves time on lines of this rate.
bool pays(const PlanLayout& layout, double rate, Collective collective, std::uint64_t bytes) {
  PlanLayout uncompressed = layout;
  uncompressed.links.wire_rate = rate;
  return seconds_at(layout, rate, collective, bytes) < least_uncompressed(uncompressed, collective, bytes);
}

// The rate of lines up to which compression pays; 0: of none.
double last_paying_rate(const PlanLayout& layout, Collective collective, std::uint64_t bytes) {
  double slow = 1e5, fast = 1e12;
  if (!pays(layout, slow, collective, bytes)) return 0;
  if (pays(layout, fast, collective, bytes)) return fast;
  while (fast / slow > 1.01) {
    const double middle = std::sqrt(slow * fast);
    (pays(layout, middle, collective, bytes) ? slow : fast) = middle;
  }
  return slow;
}

}  // namespace

int ranks_a_host(const PlanLayout& layout) { return layout.world / std::max(1, layout.host_count()); }

bool has_inside(const PlanLayout& layout, Collective collective) {
  const bool goes_that_way = collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
                             collective == Collective::all_gather;
  const bool is_even = layout.host_count() > 1 && layout.world % layout.host_count() == 0;
  return goes_that_way && is_even && ranks_a_host(layout) > 1 && layout.links.inside.rank_rate > 0;
}

PlanLayout between_hosts(const PlanLayout& layout, Collective collective) {
  PlanLayout between = layout;
  between.world = layout.host_count();
  between.hosts_flag.clear();
  between.slow_hosts.clear();
  between.shares.clear();
  const double rate = layout.line_rate / ranks_a_host(layout);
  between.given.emplace_back([](plan::MachineModel& links) -> double& { return links.wire_rate; }, rate);
  complete(between, collective);
  return between;
}

double inside_seconds(const PlanLayout& layout, Collective collective, std::uint64_t bytes) {
  const InsideWork work = work_of(layout, collective, static_cast<double>(bytes));
  return work.bytes / layout.links.inside.rank_rate + work.meetings * layout.links.inside.latency;
}

void print_inside(const PlanLayout& layout, Collective collective, std::uint64_t bytes) {
  const double inside = inside_seconds(layout, collective, bytes);
  const plan::Choice choice = choice_between(layout, collective, bytes);
  const double between = seconds_between(choice);
  const int ranks = ranks_a_host(layout);
  fmt::print("\nwith another library inside the hosts, at {:.4g} Gbit/s a rank:\n",
             layout.links.inside.rank_rate * 8e-9);
  fmt::print("  {:>9}  compression {}: {} inside, {} between hosts ({} of {} by each of {} ranks)\n",
             time_text(inside + between), layout.compression.to_string(), time_text(inside), time_text(between),
             to_string(choice.algorithm), size_text(bytes / static_cast<std::uint64_t>(ranks)), ranks);
  fmt::print("  {:>9}  uncompressed at best: the line's rate, all of the time\n",
             time_text(least_uncompressed(layout, collective, bytes)));
  if (layout.compression.is_none()) return;
  const double last = last_paying_rate(layout, collective, bytes);
  fmt::print("  {} {}\n", layout.compression.to_string(),
             last == 0 ? "pays on no line"
                       : fmt::format("pays on lines of up to {:.3g} Gbit/s a host, by this profile", last * 8e-9));
}

}  // namespace qccl::tools
