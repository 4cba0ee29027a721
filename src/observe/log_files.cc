// Logs as files. The trace is Chrome's JSON object format
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). It holds the whole log, so that
// `qccl log` and `qccl trace merge` need no other file.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "qccl/log_report.h"

namespace qccl {
namespace {

constexpr int kFormatVersion = 1;

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// The record's fields, the same in both files.
template <class Field>
void for_each_field(const OperationRecord& record, Field field) {
  field("operation", record.operation);
  field("name", record.name);
  field("group", record.group);
  field("group_id", fmt::format("{:016x}", record.group_id));  // JSON's numbers are exact only up to 2^53
  field("group_size", record.group_size);
  field("sequence", record.sequence);
  field("is_message", record.is_message ? 1 : 0);
  field("peer", record.peer);
  field("count", record.count);
  field("type", to_string(record.type));
  field("algorithm", record.is_message ? std::string_view() : to_string(record.algorithm));
  field("path", to_string(record.path));
  field("compression", record.compression.to_string());
  field("bytes", record.bytes);
  field("bandwidth_bytes", record.bandwidth_bytes);
  field("wire_bytes", record.wire_bytes);
  field("payload_bytes", record.payload_bytes);
  field("plain_bytes", record.plain_bytes);
  field("posted_ns", record.times.posted_ns);
  field("started_ns", record.times.started_ns);
  field("ended_ns", record.times.ended_ns);
  field("error", record.error);
}

template <class T>
constexpr bool is_text = std::is_convertible_v<T, std::string_view>;

std::string args_of(const OperationRecord& record) {
  std::string out;
  for_each_field(record, [&](const char* key, const auto& value) {
    out += fmt::format("{}\"{}\": ", out.empty() ? "{" : ", ", key);
    if constexpr (is_text<decltype(value)>) {
      out += quoted(value);
    } else {
      out += fmt::format("{}", value);
    }
  });
  return out + "}";
}

// The offset added to a rank's times to make those of all ranks comparable.
class Alignment {
 public:
  explicit Alignment(std::span<const RankLog> logs) {
    for (const RankLog& log : logs) offsets_.try_emplace(log.clock, log.unix_offset_ns);
    for (const RankLog& log : logs) {
      for (const auto& record : log.records) begin_ = std::min(begin_, record.times.posted_ns + offset(log));
    }
  }
  // Microseconds since the first operation, to the nanosecond.
  std::string since_begin(const RankLog& log, std::int64_t ns) const { return microseconds(ns + offset(log) - begin_); }
  static std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

 private:
  // If clocks have no name, uses each rank's time of day.
  std::int64_t offset(const RankLog& log) const {
    return log.clock.empty() ? log.unix_offset_ns : offsets_.at(log.clock);
  }

  std::map<std::string, std::int64_t> offsets_;
  std::int64_t begin_ = std::numeric_limits<std::int64_t>::max();
};

// The row of a rank's track in which to draw an operation, from 1: the first row that is free at the time.
class TraceRows {
 public:
  std::ptrdiff_t take(const OperationTimes& times) {
    auto row = std::ranges::find_if(busy_until_, [&](std::int64_t end) { return end <= times.posted_ns; });
    if (row == busy_until_.end()) row = busy_until_.insert(row, 0);
    *row = times.ended_ns;
    return row - busy_until_.begin() + 1;
  }

 private:
  std::vector<std::int64_t> busy_until_;
};

std::string rank_head(const RankLog& log) {
  return fmt::format(R"({{"rank": {}, "world": {}, "host": {}, "clock": {}, "unix_offset_ns": {}, "dropped": {}}})",
                     log.rank, log.world, quoted(log.host), quoted(log.clock), log.unix_offset_ns, log.dropped);
}

void add_events(const RankLog& log, const Alignment& alignment, std::string& out) {
  out += fmt::format(R"({}{{"name": "process_name", "ph": "M", "pid": {}, "args": {{"name": {}}}}})",
                     out.back() == '[' ? "\n" : ",\n", log.rank, quoted(fmt::format("rank {} {}", log.rank, log.host)));
  out += fmt::format(R"(,
{{"name": "process_sort_index", "ph": "M", "pid": {}, "args": {{"sort_index": {}}}}})",
                     log.rank, log.rank);
  std::vector<const OperationRecord*> records;
  for (const OperationRecord& record : log.records) records.push_back(&record);
  std::stable_sort(records.begin(), records.end(),
                   [](const auto* a, const auto* b) { return a->times.posted_ns < b->times.posted_ns; });
  TraceRows rows;
  for (const OperationRecord* record : records) {
    const OperationTimes& times = record->times;
    out += fmt::format(R"(,
{{"name": {}, "cat": "qccl", "ph": "X", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {}}})",
                       quoted(record->name), log.rank, rows.take(times), alignment.since_begin(log, times.posted_ns),
                       Alignment::microseconds(times.ended_ns - times.posted_ns), args_of(*record));
  }
}

// Text as spreadsheets read it: quoted if it has a comma, a quote or a line end.
std::string csv_text(std::string_view text) {
  if (text.find_first_of(",\"\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

}  // namespace

std::string to_trace(std::span<const RankLog> logs) {
  std::string out = fmt::format(R"({{"displayTimeUnit": "ms", "qccl": {{"version": {}, "ranks": [)", kFormatVersion);
  for (const RankLog& log : logs) out += (&log == logs.data() ? "" : ", ") + rank_head(log);
  out += "]}, \"traceEvents\": [";
  const Alignment alignment(logs);
  for (const RankLog& log : logs) add_events(log, alignment, out);
  return out + "\n]}\n";
}

std::string to_csv(std::span<const RankLog> logs) {
  std::string out = "rank";
  for_each_field(OperationRecord(), [&](const char* key, const auto&) { out += fmt::format(",{}", key); });
  out += ",latency_ms,algbw_gbps,busbw_gbps,compression_ratio\n";
  for (const RankLog& log : logs) {
    for (const OperationRecord& record : log.records) {
      out += std::to_string(log.rank);
      for_each_field(record, [&](const char*, const auto& value) {
        if constexpr (is_text<decltype(value)>) {
          out += "," + csv_text(value);
        } else {
          out += fmt::format(",{}", value);
        }
      });
      const Bandwidth bandwidth = bandwidth_of(record, BandwidthFormula::nccl_tests, log.world);
      out += fmt::format(",{:.6f},{:.6f},{:.6f},{:.4f}\n", record.latency_ms(), bandwidth.algbw_gbps,
                         bandwidth.busbw_gbps, record.compression_ratio());
    }
  }
  return out;
}

}  // namespace qccl
