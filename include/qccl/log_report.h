// Summaries of a log: bandwidths, tables, stragglers, and files for other programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qccl/log.h"

namespace qccl {

// nccl_tests: algbw = size / time; busbw = algbw x nccl-tests' factor, for the number of ranks in the group. deepspeed:
// DeepSpeed's formulas, for comparison with its tables: the algbw of an all_reduce is doubled, that of a reduce_scatter
// is multiplied by the number of ranks, and the number of ranks is always that of the whole job.
enum class BandwidthFormula : std::uint8_t { nccl_tests, deepspeed };

// In units of 10^9 bits a second.
struct Bandwidth {
  double algbw_gbps = 0;  // size over time
  double busbw_gbps = 0;  // times the factor of the collective
};
// `world` is the job's number of ranks, which only DeepSpeed's formulas use.
Bandwidth bandwidth_of(const OperationRecord& record, BandwidthFormula formula, int world);

// The successful operations of one name and size. Averages leave out a tenth of the values at each end.
struct OperationSummary {
  std::string name;              // the log_name, or the operation
  std::uint64_t bytes = 0;       // size of each operation
  std::size_t count = 0;         // number of operations
  double total_ms = 0;           // sum of their times
  double average_ms = 0;         // mean time
  double min_ms = 0;             // shortest time
  double p50_ms = 0;             // median
  double p90_ms = 0;             // 90th percentile
  double p99_ms = 0;             // 99th percentile
  double max_ms = 0;             // longest time
  double algbw_gbps = 0;         // mean, see Bandwidth
  double busbw_gbps = 0;         // mean, see Bandwidth
  double wire_bytes = 0;         // per operation
  double compression_ratio = 1;  // uncompressed size over the size sent
};
// In order of first use; sizes ascend.
std::vector<OperationSummary> summarize(const RankLog& log, BandwidthFormula formula = BandwidthFormula::nccl_tests);

// Which rank kept the others waiting, from the logs of several ranks. It counts the operations that all members of
// their group have logged and in which every rank waits for all others; group and sequence match the records. The last
// rank to arrive waits least: an operation's shortest time is that of moving its data, and the rest of each other
// rank's time was waiting.
struct StragglerReport {
  // The operations of one name and size, as seen by rank `viewer`.
  struct Operations {
    std::string name;                 // the log_name, or the operation
    std::uint64_t bytes = 0;          // size of each operation
    std::size_t count = 0;            // number of operations
    double total_comm_ms = 0;         // moving data
    double total_straggler_ms = 0;    // waiting for the last rank
    double average_comm_ms = 0;       // mean of an operation
    double average_straggler_ms = 0;  // mean of an operation
  };
  // How often the others waited for a rank, and how long.
  struct Rank {
    int rank = 0;              // in the job
    std::size_t last_in = 0;   // operations in which this rank came last
    double waited_for_ms = 0;  // time the others waited for it, on average, over all operations
    double waited_ms = 0;      // time it waited for others
  };
  std::vector<Operations> operations;  // by name and size
  std::vector<Rank> ranks;             // ordered by waited_for_ms, the largest first
  std::size_t compared = 0;            // operations counted
  std::size_t incomplete = 0;          // operations missing from some member's log
};
// `viewer`: the rank whose log gives the operations' times.
StragglerReport find_stragglers(std::span<const RankLog> logs, int viewer);

// ---- text, with DeepSpeed's columns and widths

// "comm op: all_reduce | time (ms): 1.23 | msg size: 4.0 MB | algbw (Gbps): 27.28 | busbw (Gbps): 40.92"
std::string verbose_line(const OperationRecord& record);
// 1536: "1.5 KB"
std::string size_text(std::uint64_t bytes);
// "Comm. Op, Message Size, Count, Total Latency(ms), Avg Latency(ms), tput_avg (Gbps), busbw_avg (Gbps)"
std::string latency_table(std::span<const OperationSummary> summaries);
// Columns that DeepSpeed has no table for: percentiles, bytes on the wire, compression ratio.
std::string wire_table(std::span<const OperationSummary> summaries);
// DeepSpeed's table, followed by the ranks for which others waited.
std::string straggler_table(const StragglerReport& report);

// ---- files

// Chrome's trace format, for ui.perfetto.dev: one process per rank, with overlapping operations one under another; each
// event's "args" hold the whole record, times unchanged. Times of ranks with equal clocks are compared directly, other
// ranks' by the time of day.
std::string to_trace(std::span<const RankLog> logs);
// One line per operation under a header line.
std::string to_csv(std::span<const RankLog> logs);

}  // namespace qccl
