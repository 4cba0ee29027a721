// Joining the logs of a process, and their file.
#include "observe/log_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/expect_failure.h"

namespace qccl::internal {
namespace {

OperationRecord ended_at(std::int64_t time) {
  OperationRecord made;
  made.operation = "barrier";
  made.times.ended_ns = time;
  return made;
}

void end(OperationRecord& record, std::int64_t time) { record.times.ended_ns = time; }
template <class Record>
void end(Record& record, std::int64_t time) {
  record.ended_ns = time;
}

std::int64_t end_of(const OperationRecord& record) { return record.times.ended_ns; }
template <class Record>
std::int64_t end_of(const Record& record) {
  return record.ended_ns;
}

// With a record of each kind at each of the times.
RankLog log_of_every_kind(std::initializer_list<std::int64_t> times) {
  RankLog log;
  const auto fill = [&](auto& list) {
    for (const std::int64_t time : times) end(list.emplace_back(), time);
  };
  visit_lists(fill, log);
  return log;
}

void add_all(LogStore& store, const RankLog& log) {
  const auto add = [&](const auto& list) {
    for (const auto& record : list) store.add(record);
  };
  visit_lists(add, log);
}

// A list that visit_lists() does not have would be a gap of its size.
TEST(RankLogs, have_no_member_that_the_visitors_leave_out) {
  RankLog log;
  std::vector<std::pair<const char*, std::size_t>> members;
  const auto note = [&](const auto& member) {
    members.emplace_back(reinterpret_cast<const char*>(&member), sizeof(member));
  };
  visit_fields(log, [&](const char*, const auto& field) { note(field); });
  visit_lists(note, log);
  members.emplace_back(reinterpret_cast<const char*>(&log + 1), 0);
  std::ranges::sort(members);
  const char* end = reinterpret_cast<const char*>(&log);
  for (const auto& [begin, bytes] : members) {
    EXPECT_LT(begin - end, static_cast<std::ptrdiff_t>(alignof(RankLog)));
    end = begin + bytes;
  }
}

TEST(RankLogs, join_with_every_kind_of_record_in_order) {
  RankLog log = log_of_every_kind({1, 4});
  log.world = 8;
  log.dropped = 2;
  RankLog later = log_of_every_kind({2, 3, 5});
  later.rank = 3;
  later.world = 4;
  later.host = "node";
  later.clock = "boot";
  later.unix_offset_ns = 7;
  later.dropped = 10;
  append(log, std::move(later));
  const auto check = [](const auto& list) {
    std::vector<std::int64_t> times;
    for (const auto& record : list) times.push_back(end_of(record));
    EXPECT_EQ(times, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  };
  visit_lists(check, log);
  EXPECT_EQ(log.rank, 3);
  EXPECT_EQ(log.world, 8);
  EXPECT_EQ(log.host, "node");
  EXPECT_EQ(log.clock, "boot");
  EXPECT_EQ(log.unix_offset_ns, 7);
  EXPECT_EQ(log.dropped, 12u);
}

class LogStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  LogStore::Identity rank(int rank, int world = 4) const { return {.rank = rank, .world = world}; }
  std::string file(int rank) const { return options_.file + std::to_string(rank) + ".json"; }
  nlohmann::json read(int rank) const { return nlohmann::json::parse(std::ifstream(file(rank))); }
  std::vector<std::int64_t> times(int rank) const {
    std::vector<std::int64_t> found;
    const nlohmann::json trace = read(rank);
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") found.push_back(event.at("args").at("ended_ns"));
    }
    return found;
  }
  // When the records of each kind ended.
  std::map<std::string, std::vector<std::int64_t>> times_by_kind(int rank) const {
    std::map<std::string, std::vector<std::int64_t>> found;
    const nlohmann::json trace = read(rank);
    for (const auto& event : trace.at("traceEvents")) {
      if (event.contains("cat")) found[event.at("cat")].push_back(event.at("args").at("ended_ns"));
    }
    return found;
  }

  // Each test's own: the process remembers the files that it has written.
  const std::filesystem::path folder_ = ::testing::TempDir() +
                                        ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                                        std::to_string(::getpid());
  const LogOptions options_{.enabled = true, .capacity = 4, .file = folder_ / "log_"};
};

TEST_F(LogStoreTest, logs_of_one_rank_are_one_in_its_file) {
  LogStore first(rank(3)), second(rank(3, 5)), other(rank(1));
  for (LogStore* const each : {&first, &second, &other}) each->configure(options_).take_or_throw();
  second.add(ended_at(2));
  second.write_file().take_or_throw();
  first.add(ended_at(1));
  first.add(ended_at(3));
  first.write_file().take_or_throw();
  other.write_file().take_or_throw();
  EXPECT_EQ(times(3), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(times(1), std::vector<std::int64_t>());
  const auto heads = read(3).at("qccl").at("ranks");
  ASSERT_EQ(heads.size(), 1u);
  EXPECT_EQ(heads[0].at("rank"), 3);
  EXPECT_EQ(heads[0].at("world"), 5);
  EXPECT_EQ(heads[0].at("dropped"), 0);
}

TEST_F(LogStoreTest, together_they_keep_as_many_records_as_one) {
  for (std::int64_t job = 0; job < 3; ++job) {
    LogStore log(rank(0));
    log.configure(options_).take_or_throw();
    for (std::int64_t i = 0; i < 5; ++i) log.add(ended_at(10 * job + i));
    log.write_file().take_or_throw();
  }
  EXPECT_EQ(times(0), (std::vector<std::int64_t>{21, 22, 23, 24}));
  EXPECT_EQ(read(0).at("qccl").at("ranks")[0].at("dropped"), 11);
}

TEST_F(LogStoreTest, jobs_one_after_another_keep_every_kind_of_record) {
  std::size_t kinds = 0;
  const RankLog empty = log_of_every_kind({});
  visit_lists([&](const auto&) { ++kinds; }, empty);
  for (const auto& times : {std::pair{1, 2}, {3, 4}}) {
    LogStore log(rank(0));
    log.configure(options_).take_or_throw();
    add_all(log, log_of_every_kind({times.first, times.second}));
    log.write_file().take_or_throw();
  }
  EXPECT_EQ(times_by_kind(0).size(), kinds);
  for (const auto& [kind, times] : times_by_kind(0)) EXPECT_EQ(times, (std::vector<std::int64_t>{1, 2, 3, 4})) << kind;

  LogStore last(rank(0));
  last.configure(options_).take_or_throw();
  add_all(last, log_of_every_kind({5}));
  last.write_file().take_or_throw();
  for (const auto& [kind, times] : times_by_kind(0)) EXPECT_EQ(times, (std::vector<std::int64_t>{2, 3, 4, 5})) << kind;
}

TEST_F(LogStoreTest, a_job_without_operations_keeps_its_gauges) {
  for (const std::int64_t time : {1, 2}) {
    LogStore log(rank(0));
    log.configure(options_).take_or_throw();
    GaugeRecord gauge;
    gauge.ended_ns = time;
    log.add(gauge);
    log.write_file().take_or_throw();
  }
  EXPECT_EQ(times_by_kind(0).at("qccl gauge"), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(LogStoreTest, every_kind_of_record_makes_room_and_is_forgotten) {
  LogStore log(rank(0));
  log.configure(options_).take_or_throw();
  add_all(log, log_of_every_kind({1, 2, 3, 4, 5, 6}));
  const auto oldest = [](const auto& list) {
    ASSERT_EQ(list.size(), 4u);
    EXPECT_EQ(end_of(list.front()), 3);
  };
  const RankLog full = log.read();
  visit_lists(oldest, full);
  EXPECT_EQ(full.dropped, 2u) << "operations alone count";
  log.clear();
  const RankLog cleared = log.read();
  visit_lists([](const auto& list) { EXPECT_TRUE(list.empty()); }, cleared);
  EXPECT_EQ(cleared.dropped, 0u);
}

TEST_F(LogStoreTest, what_an_earlier_process_left_is_emptied_and_what_this_one_wrote_is_not) {
  std::ofstream(file(0)) << "of an earlier process";
  LogStore log(rank(0));
  log.configure(options_).take_or_throw();
  EXPECT_EQ(std::filesystem::file_size(file(0)), 0u);
  log.add(ended_at(1));
  log.write_file().take_or_throw();
  LogStore later(rank(0));
  later.configure(options_).take_or_throw();
  EXPECT_EQ(times(0), std::vector<std::int64_t>{1});
}

TEST_F(LogStoreTest, a_file_that_can_not_be_written_changes_nothing) {
  LogStore log(rank(0));
  const LogOptions nowhere{.enabled = true, .file = folder_ / "no" / "log_"};
  expect_failure(log.configure(nowhere), ErrorKind::invalid_argument, "make its folder");
  EXPECT_FALSE(log.is_on());
}

TEST(LogStore, a_reader_gets_each_record_once) {
  LogStore store({});
  ASSERT_TRUE(store.configure({.enabled = true, .capacity = 3}).ok());
  LogStore::Seen seen;
  for (int i = 0; i < 5; ++i) store.add(RoundRecord{.round = static_cast<std::uint64_t>(i)});
  const RankLog first = store.read_since(seen);
  ASSERT_EQ(first.rounds.size(), 3U) << "what is kept";
  EXPECT_EQ(first.rounds.front().round, 2U);
  EXPECT_TRUE(store.read_since(seen).rounds.empty());
  store.add(RoundRecord{.round = 9});
  store.add(GaugeRecord{});
  const RankLog second = store.read_since(seen);
  ASSERT_EQ(second.rounds.size(), 1U);
  EXPECT_EQ(second.rounds.front().round, 9U);
  EXPECT_EQ(second.gauges.size(), 1U);
  store.add(RoundRecord{});
  store.clear();
  EXPECT_TRUE(store.read_since(seen).rounds.empty());
}

}  // namespace
}  // namespace qccl::internal
