// Logs as text. Tables for people have DeepSpeed's columns, 20 characters wide, so that programs that read its output
// read ours. The trace is Chrome's JSON object format
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). It holds the whole log, so that
// `qccl log` and `qccl trace merge` need no other file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "qccl/log_report.h"

namespace qccl {
namespace {

// ---- Tables

constexpr int kWidth = 20;

std::string cells(std::initializer_list<std::string> texts) {
  std::string line;
  for (const std::string& text : texts) line += fmt::format("{:<{}}", text, kWidth);
  return line + "\n";
}

std::string number(double value) { return fmt::format("{:.2f}", value); }

// Prints each operation's name on a line of its own, and its rows below.
template <class Row, class Write>
std::string rows(std::span<const Row> all, Write write) {
  std::string text;
  const std::string* name = nullptr;
  for (const Row& row : all) {
    if (name == nullptr || *name != row.name) text += row.name + "\n";
    name = &row.name;
    text += write(row);
  }
  return text;
}

// ---- Files

using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 1;

template <class Field>
Json json_of(const Field& field) {
  if constexpr (std::is_same_v<Field, bool>) {
    return field ? 1 : 0;
  } else if constexpr (std::is_enum_v<Field>) {
    return to_string(field);
  } else {
    return field;
  }
}
Json json_of(const Compression& compression) { return compression.to_string(); }
Json json_of(Hexadecimal<const std::uint64_t> field) { return fmt::format("{:016x}", field.number); }

template <class Fields>
Json object_of(const Fields& fields) {
  Json object;
  visit_fields(fields, [&](const char* key, const auto& field) { object[key] = json_of(field); });
  return object;
}

Json fields_of(const OperationRecord& record) {
  Json fields = object_of(record);
  if (record.is_message) fields["algorithm"] = "";
  return fields;
}

// A log_name is the user's bytes, UTF-8 or not.
std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The offset added to a rank's times to make those of all ranks comparable.
class Alignment {
 public:
  explicit Alignment(std::span<const RankLog> logs) {
    for (const RankLog& log : logs) offsets_.try_emplace(log.clock, log.unix_offset_ns);
    for (const RankLog& log : logs) {
      for (const auto& record : log.records) begin_ = std::min(begin_, record.times.posted_ns + offset(log));
      for (const auto& round : log.rounds) begin_ = std::min(begin_, round.ended_ns + offset(log));
      for (const auto& gauge : log.gauges) begin_ = std::min(begin_, gauge.ended_ns + offset(log));
    }
  }
  // Microseconds since the first operation.
  double since_begin(const RankLog& log, std::int64_t ns) const { return microseconds(ns + offset(log) - begin_); }
  static double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

 private:
  // If clocks have no name, uses each rank's time of day.
  std::int64_t offset(const RankLog& log) const {
    return log.clock.empty() ? log.unix_offset_ns : offsets_.at(log.clock);
  }

  std::map<std::string, std::int64_t> offsets_;
  std::int64_t begin_ = std::numeric_limits<std::int64_t>::max();
};

// The row of a rank's track on which to draw an operation, from 1: the first that is free at the time.
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

// Calls add() with each event of a rank.
template <class Add>
void for_each_event(const RankLog& log, const Alignment& alignment, Add add) {
  const auto describe_track = [&](const char* name, Json args) {
    add(Json{{"name", name}, {"ph", "M"}, {"pid", log.rank}, {"args", std::move(args)}});
  };
  describe_track("process_name", {{"name", fmt::format("rank {} {}", log.rank, log.host)}});
  describe_track("process_sort_index", {{"sort_index", log.rank}});
  std::vector<const OperationRecord*> records;
  for (const OperationRecord& record : log.records) records.push_back(&record);
  std::ranges::stable_sort(records, {}, [](const auto* record) { return record->times.posted_ns; });
  TraceRows rows;
  for (const OperationRecord* record : records) {
    const OperationTimes& times = record->times;
    add(Json{{"name", record->name},
             {"cat", "qccl"},
             {"ph", "X"},
             {"pid", log.rank},
             {"tid", rows.take(times)},
             {"ts", alignment.since_begin(log, times.posted_ns)},
             {"dur", Alignment::microseconds(times.ended_ns - times.posted_ns)},
             {"args", fields_of(*record)}});
  }
  const auto add_moment = [&](const std::string& name, const char* category, const auto& record) {
    add(Json{{"name", name},
             {"cat", category},
             {"ph", "i"},
             {"s", "p"},
             {"pid", log.rank},
             {"tid", 1},
             {"ts", alignment.since_begin(log, record.ended_ns)},
             {"args", object_of(record)}});
  };
  for (const RoundRecord& round : log.rounds) {
    add_moment(fmt::format("outer round {} fragment {}", round.round, round.fragment), "qccl round", round);
  }
  for (const GaugeRecord& gauge : log.gauges) add_moment(gauge.name, "qccl gauge", gauge);
}

// Text as spreadsheets read it: quoted if it has a comma, a quote or a line end.
std::string csv_text(std::string_view text) {
  if (text.find_first_of(",\"\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

}  // namespace

// ---- Tables

std::string size_text(std::uint64_t bytes) {
  static constexpr std::array kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  if (bytes == 0) return "0B";
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  // At most two decimals, at least one.
  std::string digits = fmt::format("{:.2f}", value);
  if (digits.back() == '0') digits.pop_back();
  return fmt::format("{} {}", digits, kUnits[unit]);
}

std::string verbose_line(const OperationRecord& record) {
  const Bandwidth bandwidth = bandwidth_of(record, BandwidthFormula::nccl_tests, record.group_size);
  return fmt::format("comm op: {} | time (ms): {:.2f} | msg size: {} | algbw (Gbps): {:.2f} | busbw (Gbps): {:.2f}",
                     record.name, record.latency_ms(), size_text(record.bytes), bandwidth.algbw_gbps,
                     bandwidth.busbw_gbps);
}

std::string latency_table(std::span<const OperationSummary> summaries) {
  return cells({"Comm. Op", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)", "tput_avg (Gbps)",
                "busbw_avg (Gbps)"}) +
         rows(summaries, [](const OperationSummary& row) {
           return cells({"", size_text(row.bytes), std::to_string(row.count), number(row.total_ms),
                         number(row.average_ms), number(row.algbw_gbps), number(row.busbw_gbps)});
         });
}

std::string wire_table(std::span<const OperationSummary> summaries) {
  return "______________________________________\n"
         "Breakdown with percentiles and traffic\n"
         "--------------------------------------\n" +
         cells({"Comm. Op", "Message Size", "Count", "Min Latency(ms)", "p50 Latency(ms)", "p90 Latency(ms)",
                "p99 Latency(ms)", "Max Latency(ms)", "Sent per Op", "Compression Ratio"}) +
         rows(summaries, [](const OperationSummary& row) {
           return cells({"", size_text(row.bytes), std::to_string(row.count), number(row.min_ms), number(row.p50_ms),
                         number(row.p90_ms), number(row.p99_ms), number(row.max_ms),
                         size_text(static_cast<std::uint64_t>(std::llround(row.wire_bytes))),
                         number(row.compression_ratio)});
         });
}

std::string straggler_table(const StragglerReport& report) {
  std::string text =
      "_______________________________\n"
      "Breakdown with straggler effect\n"
      "-------------------------------\n" +
      cells({"Comm. Op", "Message Size", "Count", "Total comm lat(ms)", "Total straggler(ms)", "Avg comm lat(ms)",
             "Avg straggler(ms)"}) +
      rows(std::span<const StragglerReport::Operations>(report.operations), [](const StragglerReport::Operations& row) {
        return cells({"", size_text(row.bytes), std::to_string(row.count), number(row.total_comm_ms),
                      number(row.total_straggler_ms), number(row.average_comm_ms), number(row.average_straggler_ms)});
      });
  for (const StragglerReport::Rank& rank : report.ranks) {
    text += fmt::format("rank {} came last in {} of {} operations, for which the others waited {:.2f} ms\n", rank.rank,
                        rank.last_in, report.compared, rank.waited_for_ms);
  }
  if (report.incomplete > 0) {
    text += fmt::format("left out: {} operations that are not in the logs of all their ranks\n", report.incomplete);
  }
  return text;
}

// ---- Files

std::string to_trace(std::span<const RankLog> logs) {
  Json head{{"version", kFormatVersion}, {"ranks", Json::array()}};
  for (const RankLog& log : logs) head["ranks"].push_back(object_of(log));
  std::string out = fmt::format(R"({{"displayTimeUnit":"ms","qccl":{},"traceEvents":[)", text_of(head));
  const Alignment alignment(logs);
  for (const RankLog& log : logs) {
    // Event by event: a document of a million records would take gigabytes.
    for_each_event(log, alignment,
                   [&](const Json& event) { out += (out.back() == '[' ? "\n" : ",\n") + text_of(event); });
  }
  return out + "\n]}\n";
}

std::string to_csv(std::span<const RankLog> logs) {
  std::string out = "rank";
  const OperationRecord none;
  visit_fields(none, [&](const char* key, const auto&) { out += fmt::format(",{}", key); });
  out += ",latency_ms,algbw_gbps,busbw_gbps,compression_ratio\n";
  for (const RankLog& log : logs) {
    for (const OperationRecord& record : log.records) {
      out += std::to_string(log.rank);
      for (const Json& field : fields_of(record)) {
        out += "," + (field.is_string() ? csv_text(field.get_ref<const std::string&>())
                                        : std::to_string(field.get<std::int64_t>()));
      }
      const Bandwidth bandwidth = bandwidth_of(record, BandwidthFormula::nccl_tests, log.world);
      out += fmt::format(",{:.6f},{:.6f},{:.6f},{:.4f}\n", record.latency_ms(), bandwidth.algbw_gbps,
                         bandwidth.busbw_gbps, record.compression_ratio());
    }
  }
  return out;
}

}  // namespace qccl
