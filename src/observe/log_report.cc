// Bandwidths, percentiles and stragglers: all the arithmetic on logs.
#include "qccl/log_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "observe/waits.h"
#include "qccl/types.h"

namespace qccl {
namespace {

// An average leaves out this share of the sorted values at each end, as DeepSpeed's do.
constexpr double kTrimmedShare = 0.1;

double mean(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double trimmed_mean(std::span<const double> sorted) {
  const auto cut = static_cast<std::size_t>(std::lround(kTrimmedShare * static_cast<double>(sorted.size())));
  return mean(sorted.subspan(cut, sorted.size() - 2 * cut));
}

double trimmed_mean_of(std::vector<double> values) {
  std::ranges::sort(values);
  return trimmed_mean(values);
}

// The smallest value that at least `share` of all values do not exceed.
double percentile(std::span<const double> sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

Bandwidth deepspeed_bandwidth(const OperationRecord& record, int world, double gbps_per_byte) {
  const std::string& operation = record.operation;
  const double n = std::max(world, 1);
  const double plain = static_cast<double>(record.bytes) * gbps_per_byte;
  if (operation == "all_reduce") return {2 * plain, plain * 2 * (n - 1) / n};
  if (operation == "all_to_all") return {plain, plain * (n - 1) / n};
  if (operation == "all_gather" || operation == "reduce_scatter") return {plain * n, plain * n * (n - 1) / n};
  return {plain, plain};
}

// Key of a summary: name, in the order of first use, and size.
using Key = std::pair<std::size_t, std::uint64_t>;

struct NameOrder {
  std::map<std::string, std::size_t> numbers;
  std::size_t of(const std::string& name) { return numbers.try_emplace(name, numbers.size()).first->second; }
};

struct Samples {
  std::string name;
  std::vector<double> ms;
  std::vector<double> algbw;
  std::vector<double> busbw;
  double wire = 0;
  double payload = 0;
  double plain = 0;
};

OperationSummary summary_of(std::uint64_t bytes, Samples&& samples) {
  std::vector<double>& ms = samples.ms;
  std::ranges::sort(ms);
  return {.name = samples.name,
          .bytes = bytes,
          .count = ms.size(),
          .total_ms = std::accumulate(ms.begin(), ms.end(), 0.0),
          .average_ms = trimmed_mean(ms),
          .min_ms = ms.front(),
          .p50_ms = percentile(ms, 0.5),
          .p90_ms = percentile(ms, 0.9),
          .p99_ms = percentile(ms, 0.99),
          .max_ms = ms.back(),
          .algbw_gbps = trimmed_mean_of(std::move(samples.algbw)),
          .busbw_gbps = trimmed_mean_of(std::move(samples.busbw)),
          .wire_bytes = samples.wire / static_cast<double>(ms.size()),
          .compression_ratio = samples.payload == 0 ? 1 : samples.plain / samples.payload};
}

// One operation as logged by its members.
struct Part {
  std::size_t log;
  const OperationRecord* record;
};
using Meeting = std::vector<Part>;

struct View {
  std::string name;
  std::vector<double> comm;
  std::vector<double> straggler;
};

void compare(const Meeting& meeting, std::vector<StragglerReport::Rank>& ranks, double& shortest) {
  const auto ms = [](const Part& part) { return part.record->latency_ms(); };
  const auto last = std::ranges::min_element(meeting, {}, ms);
  shortest = ms(*last);
  double waited = 0;
  for (const Part& part : meeting) {
    ranks[part.log].waited_ms += ms(part) - shortest;
    waited += ms(part) - shortest;
  }
  ++ranks[last->log].last_in;
  ranks[last->log].waited_for_ms += waited / static_cast<double>(meeting.size() - 1);
}

}  // namespace

Bandwidth bandwidth_of(const OperationRecord& record, BandwidthFormula formula, int world) {
  const auto ns = static_cast<double>(record.times.ended_ns - record.times.posted_ns);
  if (ns <= 0) return {};
  if (formula == BandwidthFormula::deepspeed) return deepspeed_bandwidth(record, world, 8 / ns);
  const double algbw = static_cast<double>(record.bandwidth_bytes) * 8 / ns;
  const auto collective = collective_of(record);
  return {algbw, algbw * (collective ? bus_factor(*collective, record.group_size) : 1)};
}

std::vector<OperationSummary> summarize(const RankLog& log, BandwidthFormula formula) {
  NameOrder order;
  std::map<Key, Samples> found;
  for (const OperationRecord& record : log.records) {
    if (!record.error.empty()) continue;
    Samples& samples = found[{order.of(record.name), record.bytes}];
    samples.name = record.name;
    samples.ms.push_back(record.latency_ms());
    const Bandwidth bandwidth = bandwidth_of(record, formula, log.world);
    samples.algbw.push_back(bandwidth.algbw_gbps);
    samples.busbw.push_back(bandwidth.busbw_gbps);
    samples.wire += static_cast<double>(record.wire_bytes);
    samples.payload += static_cast<double>(record.payload_bytes);
    samples.plain += static_cast<double>(record.plain_bytes);
  }
  std::vector<OperationSummary> summaries;
  for (auto& [key, samples] : found) summaries.push_back(summary_of(key.second, std::move(samples)));
  return summaries;
}

StragglerReport find_stragglers(std::span<const RankLog> logs, int viewer) {
  StragglerReport report;
  // Group and sequence, with the number of times this rank has logged them before: a process may join one job after
  // another.
  using Call = std::pair<std::uint64_t, std::uint64_t>;
  std::map<std::pair<Call, int>, Meeting> meetings;
  for (std::size_t log = 0; log < logs.size(); ++log) {
    report.ranks.push_back({.rank = logs[log].rank});
    std::map<Call, int> seen;
    for (const OperationRecord& record : logs[log].records) {
      if (!has_stragglers(record)) continue;
      const Call call{record.group_id, record.sequence};
      meetings[{call, seen[call]++}].push_back({log, &record});
    }
  }
  NameOrder order;
  std::map<Key, View> views;
  for (const auto& [key, meeting] : meetings) {
    if (meeting.size() != static_cast<std::size_t>(meeting.front().record->group_size)) {
      ++report.incomplete;
      continue;
    }
    ++report.compared;
    double shortest = 0;
    compare(meeting, report.ranks, shortest);
    for (const Part& part : meeting) {
      if (logs[part.log].rank != viewer) continue;
      View& view = views[{order.of(part.record->name), part.record->bytes}];
      view.name = part.record->name;
      view.comm.push_back(shortest);
      view.straggler.push_back(part.record->latency_ms() - shortest);
    }
  }
  for (auto& [key, view] : views) {
    report.operations.push_back(
        {.name = view.name,
         .bytes = key.second,
         .count = view.comm.size(),
         .total_comm_ms = std::accumulate(view.comm.begin(), view.comm.end(), 0.0),
         .total_straggler_ms = std::accumulate(view.straggler.begin(), view.straggler.end(), 0.0),
         .average_comm_ms = trimmed_mean_of(view.comm),
         .average_straggler_ms = trimmed_mean_of(view.straggler)});
  }
  std::ranges::stable_sort(report.ranks, std::greater{}, &StragglerReport::Rank::waited_for_ms);
  return report;
}

}  // namespace qccl
