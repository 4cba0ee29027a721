#include "qccl/log_report.h"

#include <gtest/gtest.h>

namespace qccl {
namespace {

OperationRecord record(const std::string& operation, std::uint64_t bytes, std::uint64_t bandwidth_bytes, double ms,
                       int ranks = 4) {
  OperationRecord made;
  made.operation = made.name = operation;
  made.bytes = bytes;
  made.bandwidth_bytes = bandwidth_bytes;
  made.group_size = ranks;
  made.times = {1'000, 2'000, 1'000 + static_cast<std::int64_t>(ms * 1e6)};
  return made;
}

RankLog log_of(int rank, std::vector<OperationRecord> records, int world = 4) {
  RankLog log;
  log.rank = rank;
  log.world = world;
  log.records = std::move(records);
  return log;
}

struct Case {
  const char* operation;
  std::uint64_t bytes;
  std::uint64_t bandwidth_bytes;
  Bandwidth nccl_tests;
  Bandwidth deepspeed;
};

// 1 MB in 1 ms is 8 Gbit/s; groups of 4 in a job of 8.
TEST(Bandwidth, is_nccl_tests_own_or_deepspeeds) {
  const Case cases[] = {
      {"all_reduce", 1'000'000, 1'000'000, {8, 12}, {16, 14}},
      {"all_gather", 250'000, 1'000'000, {8, 6}, {16, 14}},
      {"reduce_scatter", 1'000'000, 1'000'000, {8, 6}, {64, 56}},
      {"all_to_all", 1'000'000, 1'000'000, {8, 6}, {8, 7}},
      {"gather", 250'000, 1'000'000, {8, 6}, {2, 2}},
      {"scatter", 250'000, 1'000'000, {8, 6}, {2, 2}},
      {"broadcast", 1'000'000, 1'000'000, {8, 8}, {8, 8}},
      {"reduce", 1'000'000, 1'000'000, {8, 8}, {8, 8}},
      {"send", 1'000'000, 1'000'000, {8, 8}, {8, 8}},
      {"barrier", 0, 0, {0, 0}, {0, 0}},
  };
  for (const Case& c : cases) {
    const OperationRecord of = record(c.operation, c.bytes, c.bandwidth_bytes, 1);
    const Bandwidth own = bandwidth_of(of, BandwidthFormula::nccl_tests, 8);
    const Bandwidth theirs = bandwidth_of(of, BandwidthFormula::deepspeed, 8);
    EXPECT_DOUBLE_EQ(own.algbw_gbps, c.nccl_tests.algbw_gbps) << c.operation;
    EXPECT_DOUBLE_EQ(own.busbw_gbps, c.nccl_tests.busbw_gbps) << c.operation;
    EXPECT_DOUBLE_EQ(theirs.algbw_gbps, c.deepspeed.algbw_gbps) << c.operation;
    EXPECT_DOUBLE_EQ(theirs.busbw_gbps, c.deepspeed.busbw_gbps) << c.operation;
  }
}

TEST(Summary, has_trimmed_averages_and_percentiles_of_each_name_and_size) {
  std::vector<OperationRecord> records;
  for (int i = 1; i <= 18; ++i) records.push_back(record("all_reduce", 4000, 4000, i));
  records.push_back(record("all_reduce", 4000, 4000, 1000));
  records.push_back(record("all_reduce", 4000, 4000, 2000));
  records.push_back(record("broadcast", 8, 8, 3));
  records.push_back(record("all_reduce", 16, 16, 5));
  records.push_back(record("broadcast", 8, 8, 7));
  records.back().error = "it failed";
  const auto rows = summarize(log_of(0, records));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "all_reduce");
  EXPECT_EQ(rows[0].bytes, 16u);
  EXPECT_EQ(rows[1].count, 20u);
  EXPECT_DOUBLE_EQ(rows[1].total_ms, 171 + 3000);
  EXPECT_DOUBLE_EQ(rows[1].average_ms, 10.5);  // of 3 to 18: two at each end are left out
  EXPECT_DOUBLE_EQ(rows[1].p50_ms, 10);
  EXPECT_DOUBLE_EQ(rows[1].p90_ms, 18);
  EXPECT_DOUBLE_EQ(rows[1].p99_ms, 2000);
  EXPECT_DOUBLE_EQ(rows[1].min_ms, 1);
  EXPECT_DOUBLE_EQ(rows[1].max_ms, 2000);
  EXPECT_EQ(rows[2].name, "broadcast");
  EXPECT_EQ(rows[2].count, 1u);
}

TEST(Summary, has_bytes_sent_and_the_ratio_of_all_together) {
  std::vector<OperationRecord> records(2, record("all_reduce", 4000, 4000, 1));
  records[0].wire_bytes = 1100, records[0].payload_bytes = 1000, records[0].plain_bytes = 4000;
  records[1].wire_bytes = 2100, records[1].payload_bytes = 2000, records[1].plain_bytes = 4000;
  const auto rows = summarize(log_of(0, records));
  EXPECT_DOUBLE_EQ(rows[0].wire_bytes, 1600);
  EXPECT_DOUBLE_EQ(rows[0].compression_ratio, 8000.0 / 3000);
}

TEST(Summary, of_nothing_is_empty) { EXPECT_TRUE(summarize(log_of(0, {})).empty()); }

// If a rank may finish before another has arrived, the shortest time says nothing about delays.
TEST(Stragglers, are_found_only_in_operations_in_which_all_ranks_wait) {
  const auto logs_of = [](const std::string& operation, bool is_message = false, int group_size = 4) {
    std::vector<RankLog> logs;
    for (int rank = 0; rank < 4; ++rank) {
      logs.push_back(log_of(rank, {record(operation, 100, 100, 10 + rank, group_size)}));
      logs.back().records[0].is_message = is_message;
    }
    return logs;
  };
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}) {
    EXPECT_EQ(find_stragglers(logs_of(operation), 0).compared, 1u) << operation;
  }
  for (const char* operation : {"broadcast", "reduce", "gather", "scatter"}) {
    const StragglerReport report = find_stragglers(logs_of(operation), 0);
    EXPECT_EQ(report.compared + report.incomplete, 0u) << operation;
    EXPECT_TRUE(report.operations.empty()) << operation;
  }
  EXPECT_EQ(find_stragglers(logs_of("send", true), 0).compared, 0u);
  EXPECT_EQ(find_stragglers(logs_of("barrier", false, 1), 0).incomplete, 0u);
}

// Groups of two in a job of four, each with its own sequence; one operation is missing from some logs.
TEST(Stragglers, are_found_by_group_and_sequence) {
  const auto part = [](std::uint64_t group, std::uint64_t sequence, double ms) {
    OperationRecord made = record("all_reduce", 100, 100, ms, 2);
    made.group_id = group;
    made.sequence = sequence;
    return made;
  };
  const std::vector<RankLog> logs = {
      log_of(0, {part(1, 1, 10), part(1, 3, 12)}),
      log_of(1, {part(1, 3, 2), part(1, 2, 50)}),
      log_of(2, {part(2, 1, 1)}),
      log_of(3, {part(2, 1, 4)}),
  };
  const StragglerReport report = find_stragglers(logs, 0);
  EXPECT_EQ(report.compared, 2u);
  EXPECT_EQ(report.incomplete, 2u);
  EXPECT_EQ(report.ranks[0].rank, 1);
  EXPECT_DOUBLE_EQ(report.ranks[0].waited_for_ms, 10);
  EXPECT_EQ(report.ranks[1].rank, 2);
  EXPECT_DOUBLE_EQ(report.ranks[1].waited_for_ms, 3);
  ASSERT_EQ(report.operations.size(), 1u);
  EXPECT_DOUBLE_EQ(report.operations[0].total_comm_ms, 2);
  EXPECT_DOUBLE_EQ(report.operations[0].total_straggler_ms, 10);
}

TEST(LogText, has_deepspeeds_sizes_columns_and_line) {
  EXPECT_EQ(size_text(0), "0B");
  EXPECT_EQ(size_text(1), "1.0 B");
  EXPECT_EQ(size_text(1536), "1.5 KB");
  EXPECT_EQ(size_text(4 << 20), "4.0 MB");
  EXPECT_EQ(size_text(711'853'015), "678.88 MB");
  const std::vector<OperationRecord> records(8, record("all_reduce", 4 << 20, 4 << 20, 2));
  EXPECT_EQ(latency_table(summarize(log_of(0, records))),
            "Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     "
            "tput_avg (Gbps)     busbw_avg (Gbps)    \n"
            "all_reduce\n"
            "                    4.0 MB              8                   16.00               2.00                "
            "16.78               25.17               \n");
  EXPECT_EQ(verbose_line(records[0]),
            "comm op: all_reduce | time (ms): 2.00 | msg size: 4.0 MB | algbw (Gbps): 16.78 | busbw (Gbps): 25.17");
}

TEST(LogText, names_the_rank_that_was_waited_for) {
  const std::vector<RankLog> logs = {log_of(0, {record("barrier", 0, 0, 9, 2)}),
                                     log_of(1, {record("barrier", 0, 0, 4, 2)})};
  const std::string table = straggler_table(find_stragglers(logs, 0));
  EXPECT_NE(table.find("Breakdown with straggler effect"), std::string::npos);
  EXPECT_NE(table.find("barrier\n                    0B                  1                   4.00                5.00"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("rank 1 came last in 1 of 1 operations, for which the others waited 5.00 ms"), std::string::npos)
      << table;
}

TEST(LogFiles, align_ranks_of_one_clock_by_it_and_others_by_the_time_of_day) {
  RankLog first = log_of(0, {record("all_reduce", 8, 8, 1)});
  RankLog second = first, third = first;
  second.rank = 1, third.rank = 2;
  first.clock = second.clock = "a", third.clock = "b";
  first.unix_offset_ns = 5'000'000, second.unix_offset_ns = 5'000'077, third.unix_offset_ns = 6'000'000;
  second.records[0].times.posted_ns += 250;
  const std::vector<RankLog> logs = {first, second, third};
  const std::string trace = to_trace(logs);
  EXPECT_NE(trace.find(R"("pid":0,"tid":1,"ts":0.0,"dur":1000.0)"), std::string::npos) << trace;
  EXPECT_NE(trace.find(R"("pid":1,"tid":1,"ts":0.25,"dur":999.75)"), std::string::npos) << trace;
  EXPECT_NE(trace.find(R"("pid":2,"tid":1,"ts":1000.0)"), std::string::npos) << trace;
}

TEST(LogFiles, draw_overlapping_operations_in_rows_of_their_own) {
  std::vector<OperationRecord> records(3, record("all_reduce", 8, 8, 1));
  records[0].times = {0, 0, 1000};
  records[1].times = {500, 500, 1500};
  records[2].times = {1000, 1000, 1200};
  const std::string trace = to_trace(std::vector<RankLog>{log_of(0, records)});
  EXPECT_NE(trace.find(R"("tid":2,"ts":0.5)"), std::string::npos) << trace;
  EXPECT_NE(trace.find(R"("tid":1,"ts":1.0)"), std::string::npos) << trace;
}

TEST(LogFiles, have_the_rounds_of_training_at_their_ends) {
  RankLog log = log_of(3, {record("all_reduce", 8, 8, 1)});
  log.rounds.push_back({.round = 5, .fragment = 1, .bytes = 77, .delta_norm = 0.5, .ended_ns = 4'000});
  const std::string trace = to_trace(std::vector<RankLog>{log});
  EXPECT_NE(
      trace.find(R"({"name":"outer round 5 fragment 1","cat":"qccl round","ph":"i","s":"p","pid":3,"tid":1,"ts":3.0)"),
      std::string::npos)
      << trace;
  EXPECT_NE(trace.find(R"("bytes":77,"seconds_waited":0.0,"seconds":0.0,"delta_norm":0.5)"), std::string::npos)
      << trace;
  log.records.clear();
  EXPECT_NE(to_trace(std::vector<RankLog>{log}).find(R"("ts":0.0)"), std::string::npos) << "nothing else is there";
}

TEST(LogFiles, have_what_compressing_a_gradient_costs) {
  RankLog log = log_of(1, {record("all_reduce", 8, 8, 1)});
  log.gauges.push_back({.name = "head.weight", .step = 7, .compression = block_int({.bits = 4}), .nmse = 0.25});
  const std::string trace = to_trace(std::vector<RankLog>{log});
  EXPECT_NE(trace.find(R"({"name":"head.weight","cat":"qccl gauge","ph":"i")"), std::string::npos) << trace;
  EXPECT_NE(trace.find(R"("step":7,"compression":"int:bits=4,block=128","count":0,"bits":0.0,"nmse":0.25)"),
            std::string::npos)
      << trace;
}

TEST(LogFiles, escape_names) {
  OperationRecord odd = record("all_reduce", 8, 8, 1);
  odd.name = "a \"b\", c\n";
  const std::vector<RankLog> logs = {log_of(0, {odd})};
  EXPECT_NE(to_trace(logs).find(R"("name":"a \"b\", c\n")"), std::string::npos) << to_trace(logs);
  EXPECT_NE(to_csv(logs).find("\"a \"\"b\"\", c\n\""), std::string::npos) << to_csv(logs);
}

}  // namespace
}  // namespace qccl
