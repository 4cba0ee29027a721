// The communication log over the real transports: its record of every operation agrees with the operation itself.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>

#include "support/transports.h"

namespace qccl::testing {
namespace {

class Log : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Log, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

const LogOptions kOn{.enabled = true};

// Records in the order in which this rank posted them, group by group, messages separately.
std::vector<OperationRecord> in_posting_order(const RankLog& log) {
  auto records = log.records;
  const auto place = [](const OperationRecord& record) {
    return std::tuple(record.group_id, record.is_message, record.sequence);
  };
  std::sort(records.begin(), records.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return records;
}

std::uint64_t data_bytes(const Communicator& comm) {
  const Traffic traffic = comm.traffic();
  return traffic.payload_bytes_sent + traffic.shared_bytes_sent;
}

// Operations of all kinds and sizes. The rank waits for some at once, for most later.
class MixedOperations {
 public:
  explicit MixedOperations(Communicator& comm) : comm_(comm), other_(comm.dup()) {}

  void run(int rounds) {
    for (int i = 0; i < rounds; ++i) run_round(i);
    for (const Work& work : collectives_) work.wait();
    for (const Work& work : messages_) work.wait();
    for (const Work& work : of_other_) work.wait();
  }

  static constexpr int kInRound = 10;
  std::vector<Work> collectives_, messages_, of_other_;

 private:
  std::vector<float>& buffer(std::size_t count) { return buffers_.emplace_back(count, 1.0F); }

  void run_round(int i) {
    const std::size_t large = 20'000 + static_cast<std::size_t>(i % 7) * 9'000;
    const int next = (comm_.rank() + 1) % comm_.size();
    const int previous = (comm_.rank() + comm_.size() - 1) % comm_.size();
    const auto keep = [](std::vector<Work>& where, Work work, bool waits = false) {
      if (waits) work.wait();
      where.push_back(std::move(work));
    };
    keep(collectives_, comm_.all_reduce_async(buffer(3)), i % 2 == 0);
    keep(of_other_, other_.all_reduce_async(buffer(large), {.compression = minmax({.bits = 4})}));
    keep(collectives_, comm_.all_reduce_async(buffer(large), {.op = ReduceOp::max}));
    keep(collectives_, comm_.broadcast_async(buffer(large).data(), large, DataType::float32, {.root = 1}), i % 3 == 0);
    keep(collectives_, comm_.barrier_async());
    keep(collectives_,
         comm_.all_gather_async(buffer(large).data(), buffer(large * 3).data(), large, DataType::float32));
    keep(messages_, comm_.send_async(buffer(large), next));
    keep(messages_, comm_.recv_async(buffer(large), previous), i % 5 == 0);
    keep(messages_, comm_.send_async(buffer(5), next, {.tag = 7}));
    keep(messages_, comm_.recv_async(buffer(5), previous, {.tag = 7}));
  }

  Communicator& comm_;
  Communicator other_;
  std::deque<std::vector<float>> buffers_;
};

TEST_P(Log, of_a_thousand_mixed_operations_agrees_with_their_own_times_and_with_the_traffic) {
  constexpr int kRounds = 100;
  expect_success(3, [](Communicator& comm) {
    MixedOperations operations(comm);
    comm.log().configure(kOn);
    comm.barrier();
    comm.log().clear();
    const std::uint64_t before = data_bytes(comm);
    operations.run(kRounds);
    const std::uint64_t sent = data_bytes(comm) - before;
    const RankLog log = comm.log().read();
    ASSERT_EQ(log.records.size(), static_cast<std::size_t>(kRounds * MixedOperations::kInRound));
    std::vector<OperationRecord> own[3];  // collectives, messages, of the other group
    std::uint64_t logged_bytes = 0;
    for (const OperationRecord& record : in_posting_order(log)) {
      own[record.group != "world" ? 2 : record.is_message ? 1 : 0].push_back(record);
      logged_bytes += record.payload_bytes;
      EXPECT_EQ(record.error, "");
      EXPECT_EQ(record.name, record.operation);
    }
    const std::vector<Work>* works[] = {&operations.collectives_, &operations.messages_, &operations.of_other_};
    for (int kind = 0; kind < 3; ++kind) {
      ASSERT_EQ(own[kind].size(), works[kind]->size());
      for (std::size_t i = 0; i < own[kind].size(); ++i) {
        const OperationTimes& times = own[kind][i].times;
        EXPECT_EQ(times, (*works[kind])[i].times()) << own[kind][i].name << " " << i;
        EXPECT_LE(times.posted_ns, times.started_ns);
        EXPECT_LE(times.started_ns, times.ended_ns);
      }
    }
    EXPECT_EQ(logged_bytes, sent);
  });
}

TEST_P(Log, that_is_off_keeps_nothing_and_takes_no_times) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> data(1000, 1.0F);
    const Work work = comm.all_reduce_async(data);
    work.wait();
    EXPECT_EQ(work.times(), std::nullopt);
    comm.log().configure({.enabled = false, .verbose = true, .prof_all = true});
    comm.all_reduce(data);
    EXPECT_TRUE(comm.log().read().records.empty());
    comm.log().configure(kOn);
    comm.all_reduce(data);
    comm.log().configure({.enabled = false});
    comm.all_reduce(data);
    EXPECT_EQ(comm.log().read().records.size(), 1u);
  });
}

TEST_P(Log, of_listed_operations_has_those_alone_by_any_of_their_names) {
  expect_success(2, [](Communicator& comm) {
    comm.log().configure({.enabled = true, .prof_all = false, .prof_ops = {"all_gather_into_tensor", "mine"}});
    std::vector<float> data(10, 1.0F), whole(20);
    comm.all_reduce(data);
    comm.all_gather(data, whole);
    comm.all_reduce(data, {.log_name = "mine"});
    comm.broadcast(data, {.log_name = "other"});
    std::vector<std::string> names;
    for (const auto& record : comm.log().read().records) names.push_back(record.operation + " " + record.name);
    EXPECT_EQ(names, (std::vector<std::string>{"all_gather all_gather", "all_reduce mine"}));
  });
}

TEST_P(Log, keeps_so_many_records_and_counts_the_others) {
  expect_success(2, [](Communicator& comm) {
    comm.log().configure({.enabled = true, .capacity = 10});
    std::vector<float> data(10, 1.0F);
    for (int i = 0; i < 25; ++i) comm.all_reduce(data, {.log_name = i < 20 ? "early" : "late"});
    const RankLog log = comm.log().read();
    EXPECT_EQ(log.dropped, 15u);
    ASSERT_EQ(log.records.size(), 10u);
    EXPECT_EQ(log.records.back().name, "late");
  });
}

TEST(LogFile, is_empty_from_the_beginning_of_a_job_to_its_end) {
  const std::string prefix = ::testing::TempDir() + "qccl_log_test_" + std::to_string(::getpid()) + "_";
  const std::string file = prefix + "0.json";
  const InitOptions options{.rank = 0, .world = 1, .log = LogOptions{.enabled = true, .file = prefix}};
  std::ofstream(file) << "of an earlier job";
  auto comm = std::make_unique<Communicator>(init(options));
  OperationLog log = comm->log();
  EXPECT_EQ(std::filesystem::file_size(file), 0u);
  comm.reset();
  const auto written = std::filesystem::file_size(file);
  EXPECT_GT(written, 0u);
  log.configure({.enabled = false, .file = prefix});
  EXPECT_EQ(std::filesystem::file_size(file), written) << "the job's own";
  std::filesystem::remove(file);
}

TEST_P(Log, counts_bandwidth_by_the_groups_own_size) {
  expect_success(4, [](Communicator& comm) {
    auto pair = comm.split(comm.rank() / 2);
    comm.log().configure(kOn);
    std::vector<float> data(1000, 1.0F), whole(2000);
    pair->all_reduce(data);
    pair->all_gather(data, whole);
    pair->reduce_scatter(whole.data(), data.data(), 1000, DataType::float32);
    const auto records = comm.log().read().records;
    ASSERT_EQ(records.size(), 3u);
    for (const OperationRecord& record : records) {
      const double ns = record.latency_ms() * 1e6;
      const bool has_parts = record.operation != "all_reduce";
      const Bandwidth own = bandwidth_of(record, BandwidthFormula::nccl_tests, 4);
      EXPECT_EQ(record.group_size, 2);
      EXPECT_DOUBLE_EQ(own.algbw_gbps, (has_parts ? 8000 : 4000) * 8 / ns) << record.name;
      EXPECT_DOUBLE_EQ(own.busbw_gbps, own.algbw_gbps * (has_parts ? 0.5 : 1)) << record.name;
    }
    const Bandwidth theirs = bandwidth_of(records[0], BandwidthFormula::deepspeed, 4);
    EXPECT_DOUBLE_EQ(theirs.algbw_gbps, 2 * 4000 * 8 / (records[0].latency_ms() * 1e6));
  });
}

TEST_P(Log, says_by_which_way_data_went) {
  expect_success(2, [this](Communicator& comm) {
    comm.log().configure(kOn);
    std::vector<float> small(10, 1.0F), large(100'000, 1.0F);
    comm.all_reduce(small);
    comm.all_reduce(large, {.compression = minmax({.bits = 4}), .algorithm = Algorithm::sra});
    const auto records = comm.log().read().records;
    const bool has_board = GetParam() == TransportChoice::shm;
    EXPECT_EQ(records.at(0).path, has_board ? DataPath::board : DataPath::frames);
    EXPECT_EQ(records.at(1).path, DataPath::frames);
    EXPECT_EQ(records.at(1).algorithm, Algorithm::sra);
    EXPECT_GT(records.at(1).compression_ratio(), 7.5);
    EXPECT_EQ(records.at(1).compression.to_string(), minmax({.bits = 4}).to_string());
  });
}

}  // namespace
}  // namespace qccl::testing
