// What a log says when it is summed up: bandwidths, tables, stragglers, and files for other programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qccl/log.h"

namespace qccl {

// nccl_tests: algbw is the size over the time, busbw that times what the algorithm makes of it with the group's own
// number of ranks. deepspeed: DeepSpeed's, to compare with its tables: the algbw of an all_reduce is twice as high, of
// a reduce_scatter as many times as there are ranks, and the number of ranks is always the whole job's.
enum class BandwidthFormula : std::uint8_t { nccl_tests, deepspeed };

// 10^9 bits a second.
struct Bandwidth {
  double algbw_gbps = 0;
  double busbw_gbps = 0;
};
// `world` is the job's number of ranks, which only DeepSpeed's formulas ask for.
Bandwidth bandwidth_of(const OperationRecord& record, BandwidthFormula formula, int world);

// Operations of one name and size that succeeded. Averages leave out a tenth of the values at each end.
struct OperationSummary {
  std::string name;
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  double total_ms = 0;
  double average_ms = 0;
  double min_ms = 0;
  double p50_ms = 0;
  double p90_ms = 0;
  double p99_ms = 0;
  double max_ms = 0;
  double algbw_gbps = 0;
  double busbw_gbps = 0;
  double wire_bytes = 0;  // of one operation
  double compression_ratio = 1;
};
// In the order of first use, sizes ascending.
std::vector<OperationSummary> summarize(const RankLog& log, BandwidthFormula formula = BandwidthFormula::nccl_tests);

// Who kept whom waiting, from the logs of several ranks. Operations count that all members of their group have logged
// and in which every rank waits for all others, found by group and sequence. Who comes last waits least: the shortest
// time of an operation is that of its data, the rest of each other rank's was waiting.
struct StragglerReport {
  struct Operations {  // of one name and size, as `viewer` sees them
    std::string name;
    std::uint64_t bytes = 0;
    std::size_t count = 0;
    double total_comm_ms = 0;
    double total_straggler_ms = 0;
    double average_comm_ms = 0;
    double average_straggler_ms = 0;
  };
  struct Rank {
    int rank = 0;
    std::size_t last_in = 0;   // operations
    double waited_for_ms = 0;  // by the others, on average, all operations together
    double waited_ms = 0;      // for others
  };
  std::vector<Operations> operations;
  std::vector<Rank> ranks;     // whom the others waited for longest is first
  std::size_t compared = 0;    // operations
  std::size_t incomplete = 0;  // those that are not in the logs of all members
};
StragglerReport find_stragglers(std::span<const RankLog> logs, int viewer);

// ---- text, with DeepSpeed's columns and widths

// "comm op: all_reduce | time (ms): 1.23 | msg size: 4.0 MB | algbw (Gbps): 27.28 | busbw (Gbps): 40.92"
std::string verbose_line(const OperationRecord& record);
// 1536: "1.5 KB"
std::string size_text(std::uint64_t bytes);
// "Comm. Op, Message Size, Count, Total Latency(ms), Avg Latency(ms), tput_avg (Gbps), busbw_avg (Gbps)"
std::string latency_table(std::span<const OperationSummary> summaries);
// What DeepSpeed has no table for: percentiles, bytes on the wire, compression ratio.
std::string wire_table(std::span<const OperationSummary> summaries);
// DeepSpeed's, and under it who was waited for.
std::string straggler_table(const StragglerReport& report);

// ---- files

// Chrome's trace format, for ui.perfetto.dev: a process for each rank, in which operations that overlap lie one under
// another, and in each event's "args" all that the record holds, times unchanged. Times of ranks with the same clock
// are compared as they are, others by the time of day.
std::string to_trace(std::span<const RankLog> logs);
// A line for each operation under a line of names.
std::string to_csv(std::span<const RankLog> logs);

}  // namespace qccl
