#include "dashboard/operation_table.h"

#include <algorithm>
#include <cmath>

#include "qccl/log_report.h"

namespace qccl::dashboard {

void TimeHistogram::add(double ms) {
  const double step = std::floor(std::log2(std::max(ms * 1000, 1.0)) * kStepsPerOctave);
  const auto last = static_cast<double>(counts_.size() - 1);
  ++counts_[static_cast<std::size_t>(std::min(step, last))];
  ++total_;
}

double TimeHistogram::percentile(double share) const {
  std::uint64_t seen = 0;
  for (std::size_t step = 0; step < counts_.size(); ++step) {
    seen += counts_[step];
    if (seen == 0 || static_cast<double>(seen) < share * static_cast<double>(total_)) continue;
    return std::exp2((static_cast<double>(step) + 0.5) / kStepsPerOctave) / 1000;
  }
  return 0;
}

std::optional<std::string> OperationTable::add(const OperationRecord& record) {
  Key key{record.name, record.bytes};
  if (rows_.size() >= kMostRows && !rows_.contains(key)) key = {kOthers, 0};
  const auto [found, is_new] = rows_.try_emplace(key);
  Row& row = found->second;
  ++row.calls;
  row.total_ms += record.latency_ms();
  row.wire_bytes += record.wire_bytes;
  row.payload_bytes += record.payload_bytes;
  row.plain_bytes += record.plain_bytes;
  if (record.error.empty()) {
    row.times.add(record.latency_ms());
    row.busbw_gbps += bandwidth_of(record, BandwidthFormula::nccl_tests, record.group_size).busbw_gbps;
  } else {
    ++row.failed;
  }
  // Other ranks' earlier operations arrive after later ones of this rank, and change nothing back.
  Latest& latest = latest_[key];
  const bool is_later = record.sequence > latest.sequence;
  if (!is_new && (!is_later || record.compression == latest.compression)) return std::nullopt;
  latest = {record.compression, record.sequence};
  std::string before = std::exchange(row.compression, record.compression.to_string());
  if (is_new || key.first == kOthers) return std::nullopt;
  ++row.changes;
  return before;
}

}  // namespace qccl::dashboard
