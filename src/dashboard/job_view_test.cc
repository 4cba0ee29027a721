#include "dashboard/job_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "dashboard/dashboard.h"
#include "qccl/log_report.h"

namespace qccl::dashboard {
namespace {

using nlohmann::json;

constexpr std::int64_t kMs = 1'000'000;

OperationRecord record(std::uint64_t sequence, double posted_ms, double ended_ms) {
  OperationRecord record;
  record.operation = record.name = "all_reduce";
  record.group = "world";
  record.group_id = 7;
  record.group_size = 3;
  record.sequence = sequence;
  record.bytes = 4096;
  record.times = {.posted_ns = static_cast<std::int64_t>(posted_ms * kMs),
                  .started_ns = static_cast<std::int64_t>(posted_ms * kMs),
                  .ended_ns = static_cast<std::int64_t>(ended_ms * kMs)};
  return record;
}

RankLog head(int rank, const std::string& clock = "one", std::int64_t offset = 1'000'000'000) {
  return {
      .rank = rank, .world = 3, .host = "node", .clock = clock, .unix_offset_ns = offset, .dropped = 0, .records = {}};
}

json job_of(const JobView& view) { return json::parse(view.job_json()); }

// Ranks come last in turn, some operations are on two ranks only.
std::vector<RankLog> logs_of_three() {
  std::vector<RankLog> logs = {head(0), head(1), head(2)};
  for (int step = 1; step <= 60; ++step) {
    for (int rank = 0; rank < 3; ++rank) {
      if (step % 10 == 0 && rank == 1) continue;
      const double late = step % 3 == rank ? 0.1 * step : 0;
      logs[static_cast<std::size_t>(rank)].records.push_back(
          record(static_cast<std::uint64_t>(step), 10 * step + late, 10 * step + 8));
    }
  }
  return logs;
}

TEST(JobView, stragglers_are_those_of_the_report_on_whole_logs) {
  const std::vector<RankLog> logs = logs_of_three();
  const StragglerReport expected = find_stragglers(logs, 0);
  JobView view;
  for (const RankLog& log : logs) view.add_rank(log);
  const json job = job_of(view);
  EXPECT_EQ(job["stragglers"]["compared"], expected.compared);
  for (const StragglerReport::Rank& rank : expected.ranks) {
    const json& own = job["ranks"][static_cast<std::size_t>(rank.rank)];
    EXPECT_EQ(own["last_in"], rank.last_in);
    EXPECT_NEAR(own["waited_for_ms"].get<double>(), rank.waited_for_ms, 1e-6);
    EXPECT_NEAR(own["waited_ms"].get<double>(), rank.waited_ms, 1e-6);
  }
}

TEST(JobView, operations_are_those_of_the_summary_of_whole_logs) {
  RankLog log = head(0);
  for (int i = 1; i <= 200; ++i)
    log.records.push_back(record(static_cast<std::uint64_t>(i), 10 * i, 10 * i + 0.03 * i));
  JobView view;
  view.add_rank(log);
  const json row = job_of(view)["operations"][0];
  const OperationSummary expected = summarize(log).at(0);
  EXPECT_EQ(row["calls"], expected.count);
  EXPECT_NEAR(row["total_ms"].get<double>(), expected.total_ms, 1e-6 * expected.total_ms);
  EXPECT_NEAR(row["p50_ms"].get<double>(), expected.p50_ms, 0.1 * expected.p50_ms);
  EXPECT_NEAR(row["p99_ms"].get<double>(), expected.p99_ms, 0.1 * expected.p99_ms);
}

TEST(JobView, ranks_of_one_clock_compare_directly_and_others_by_the_time_of_day) {
  JobView view;
  RankLog first = head(0, "one", 1'000'000'000), second = head(1, "one", 5), third = head(2, "two", 3'000'000'000);
  for (RankLog* log : {&first, &second, &third}) log->records.push_back(record(1, 10, 20));
  for (const RankLog& log : {first, second, third}) view.add_rank(log);
  const json job = job_of(view);
  EXPECT_EQ(job["ranks"][0]["silent_ms"], 2000);
  EXPECT_EQ(job["ranks"][1]["silent_ms"], 2000) << "its own offset is no better than the first's";
  EXPECT_EQ(job["ranks"][2]["silent_ms"], 0);
}

TEST(JobView, a_wrong_number_or_name_of_ranks_is_bounded) {
  JobView view;
  RankLog strange = head(-1);
  view.add_rank(strange);
  strange = head(2'000'000'000);
  strange.world = 2'000'000'000;
  view.add_rank(strange);
  view.add(5, record(1, 1, 2));
  const json job = job_of(view);
  EXPECT_EQ(job["ranks"].size(), 1U);
  EXPECT_LE(job["missing"].size(), 4096U);
}

TEST(JobView, names_sizes_parameters_and_messages_are_bounded) {
  JobView view;
  view.add_rank(head(0));
  for (int i = 1; i <= 3000; ++i) {
    OperationRecord each = record(static_cast<std::uint64_t>(i), i, i + 1);
    each.name = fmt::format("name {}\xff {}", i, std::string(1000, 'x'));
    each.error = fmt::format("error {}", i);
    view.add(0, each);
    GaugeRecord gauge;
    gauge.name = each.name;
    gauge.residual = 9;
    view.add(0, gauge);
  }
  const json job = job_of(view);
  EXPECT_EQ(job["operations"].size(), OperationTable::kMostRows + 1);
  EXPECT_EQ(job["kinds"].size(), 63U);
  EXPECT_EQ(json::parse(view.gauges_json())["parameters"].size(), GaugeTable::kMostParameters);
  EXPECT_EQ(json::parse(view.gauges_json())["left_out"], 3000 - GaugeTable::kMostParameters);
  EXPECT_EQ(json::parse(view.messages_json()).size(), 200U);
}

TEST(JobView, a_parameters_history_stays_short_and_spans_all_steps) {
  JobView view;
  view.add_rank(head(0));
  for (std::uint64_t step = 0; step < 10'000; ++step) {
    GaugeRecord gauge;
    gauge.name = "w";
    gauge.step = step;
    view.add(0, gauge);
  }
  const json history = json::parse(view.gauges_json())["parameters"][0]["history"];
  EXPECT_LE(history.size(), GaugeTable::kMostPoints);
  EXPECT_GE(history.size(), GaugeTable::kMostPoints / 2);
  EXPECT_EQ(history[0][0], 0);
  EXPECT_GT(history.back()[0], 9800);
}

TEST(JobView, equal_messages_within_ten_seconds_are_one) {
  JobView view;
  view.add_rank(head(0));
  view.add_message("warning", "low disk", 0);
  view.add_message("warning", "low disk", 1);
  view.add(0, record(1, 1, 20'000));
  view.add_message("warning", "low disk", 0);
  const json messages = json::parse(view.messages_json());
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0]["ranks"], json::parse("[0,1]"));
}

RankStatus state(int rank, double seconds, double busy_seconds) {
  RankStatus state;
  state.rank = rank;
  state.world = 2;
  state.answered = true;
  state.host = "node";
  state.seconds = seconds;
  state.busy_seconds = busy_seconds;
  state.last = {.group = "world", .number = 7, .operation = "all_reduce", .seconds = 0.1};
  state.counters = {{.group = "world",
                     .group_size = 2,
                     .operation = "all_reduce",
                     .calls = 10,
                     .bytes = 10'000,
                     .payload_bytes = 100,
                     .plain_bytes = 800,
                     .seconds = 1}};
  return state;
}

constexpr Nanoseconds kNow = std::chrono::seconds(1'700'000'000);

TEST(JobView, states_of_a_running_job_become_shares_of_lanes_and_sums) {
  JobView view;
  view.add_states(std::vector{state(0, 10, 5), state(1, 10, 1)}, kNow);
  view.add_states(std::vector{state(0, 11, 5.75), state(1, 11, 1.1)}, kNow + std::chrono::seconds(1));
  const json job = job_of(view);
  EXPECT_NEAR(job["ranks"][0]["busy"].get<double>(), 0.8 * 0.5 + 0.2 * 0.75, 1e-6);
  EXPECT_EQ(job["ranks"][1]["state"], "ok");
  EXPECT_EQ(job["operations"][0]["name"], "all_reduce of world");
  EXPECT_EQ(job["operations"][0]["calls"], 20);
  EXPECT_EQ(job["operations"][0]["bytes"], 1000);
  EXPECT_EQ(job["operations"][0]["ratio"], 8);
  const auto end = static_cast<std::int64_t>(job["end"].get<double>() * kMs);
  const json timeline =
      json::parse(view.timeline_json({.span = {end - 900 * kMs, end - 100 * kMs}, .bins = 800, .lanes = 2}));
  const std::string busy = timeline["lanes"][0]["bins"], idle = timeline["lanes"][1]["bins"];
  EXPECT_GT(busy[200], idle[200]);
  EXPECT_NE(idle[200], '-');
}

TEST(JobView, a_rank_that_is_lost_or_warns_is_an_event_once) {
  JobView view;
  for (int i = 0; i < 3; ++i) {
    RankStatus lost;
    lost.rank = 1;
    lost.absence = "was lost: end of file";
    RankStatus other = state(0, 10 + i, 5);
    other.warnings = {"group 'world' failed"};
    view.add_states(std::vector{other, lost}, kNow + std::chrono::seconds(20 * i));
  }
  RankStatus left, stopped;
  left.rank = 2;
  left.absence = "left the job";
  stopped.rank = 3;
  stopped.absence = "does not answer; it was last heard of 3.0 s ago";
  view.add_states(std::vector{left, stopped}, kNow + std::chrono::seconds(60));
  EXPECT_EQ(job_of(view)["ranks"][1]["state"], "lost");
  EXPECT_EQ(job_of(view)["ranks"][2]["state"], "left");
  EXPECT_EQ(job_of(view)["ranks"][3]["state"], "silent");
  const json messages = json::parse(view.messages_json());
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[1]["text"], "rank 1 was lost: end of file");
}

TEST(JobView, clearing_forgets_all_and_is_news) {
  JobView view;
  view.add_rank(logs_of_three()[0]);
  const JobView::Versions before = view.versions();
  view.clear();
  EXPECT_NE(view.wait(before, std::chrono::milliseconds(0)), before);
  EXPECT_TRUE(job_of(view)["ranks"].empty());
}

TEST(Address, is_a_host_and_a_port) {
  EXPECT_EQ(parse_address("127.0.0.1:8265").value().host, "127.0.0.1");
  EXPECT_EQ(parse_address("[::1]:0").value().host, "::1");
  EXPECT_EQ(parse_address(":80").value().host, "127.0.0.1");
  for (const char* text : {"", "8265", "host", "host:", "host:-1", "host:65536", "host:1x"}) {
    EXPECT_FALSE(parse_address(text)) << text;
  }
}

TEST(Address, that_other_hosts_reach_gets_a_token_of_its_own) {
  for (const char* text : {"127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1"}) {
    EXPECT_EQ(parse_address(text).value().token, "") << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "node1:1", "127.evil.example:1"}) {
    EXPECT_EQ(parse_address(text).value().token.size(), 32U) << text;
    EXPECT_NE(parse_address(text).value().token, parse_address(text).value().token);
  }
}

}  // namespace
}  // namespace qccl::dashboard
