// The file of a process's logs.
#include "observe/log_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/expect_failure.h"

namespace qccl::internal {
namespace {

OperationRecord ended_at(std::int64_t time) {
  OperationRecord made;
  made.operation = "barrier";
  made.times.ended_ns = time;
  return made;
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

}  // namespace
}  // namespace qccl::internal
