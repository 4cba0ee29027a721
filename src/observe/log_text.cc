// Logs as tables for people: DeepSpeed's columns, 20 characters wide, so that programs that read its output read ours.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "qccl/log_report.h"

namespace qccl {
namespace {

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

}  // namespace

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

}  // namespace qccl
