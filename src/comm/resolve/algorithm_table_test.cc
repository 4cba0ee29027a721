#include "comm/resolve/algorithm_table.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "comm/resolve/resolve.h"

namespace qccl::comm {
namespace {

const std::vector<int> kTwoHosts = {0, 0, 0, 0, 4, 4, 4, 4};

AlgorithmTable::Asked asked(std::uint64_t elements, const Compression& compression = none()) {
  return {Collective::all_reduce, elements, DataType::float32, compression};
}

CostEnvironment slow_wire() {
  CostEnvironment cost_environment;
  cost_environment.profile.wire_rate = 125e6;
  return cost_environment;
}

TEST(AlgorithmTable, gives_what_the_plan_chooses_and_remembers_it) {
  AlgorithmTable table(slow_wire(), kTwoHosts);
  for (int round = 0; round < 2; ++round) {
    for (const std::uint64_t elements : {1u, 100u, 100'000u, 1u << 24}) {
      for (const Compression& codec : {none(), minmax({.bits = 4}), cast()}) {
        EXPECT_EQ(table.choose(asked(elements, codec)), table.explain(asked(elements, codec)).algorithm);
      }
    }
  }
  EXPECT_EQ(table.choose(asked(1 << 24)), Algorithm::hierarchical);
  EXPECT_EQ(table.choose(asked(1 << 24, minmax({.bits = 4}))), Algorithm::hierarchical);
}

// Each rank has a link of its own then, whichever host it is on.
TEST(AlgorithmTable, of_paced_ranks_knows_no_hosts) {
  CostEnvironment paced = slow_wire();
  paced.paced_rate = 12.5e6;
  AlgorithmTable table(paced, kTwoHosts);
  EXPECT_EQ(table.choose(asked(1 << 24)), Algorithm::sra);
}

// A message between containers of one machine takes no longer than over loopback.
TEST(AlgorithmTable, of_hosts_on_one_machine_takes_more_hops_for_fewer_messages) {
  const std::vector<int> hosts = {0, 1, 2, 3};
  CostEnvironment cost_environment;
  EXPECT_EQ(AlgorithmTable(cost_environment, hosts).choose(asked(1)), Algorithm::one_shot);
  cost_environment.one_machine = true;
  EXPECT_EQ(AlgorithmTable(cost_environment, hosts).choose(asked(1)), Algorithm::recursive_doubling);
}

// What counts there is the work of all, not how long one of them waits.
TEST(AlgorithmTable, of_hosts_on_one_machine_that_share_cores_sends_fewer_messages_up_to_larger_sizes) {
  const std::vector<int> hosts = {0, 1, 2, 3};
  CostEnvironment cost_environment;
  cost_environment.one_machine = true;
  EXPECT_EQ(AlgorithmTable(cost_environment, hosts).choose(asked(1 << 13)), Algorithm::sra);
  cost_environment.shared_cores = 2;
  for (const std::size_t elements : {1, 64, 1 << 10, 1 << 13}) {
    EXPECT_EQ(AlgorithmTable(cost_environment, hosts).choose(asked(elements)), Algorithm::recursive_doubling)
        << elements;
  }
}

// Its profile holds what was measured with ranks that take turns.
TEST(AlgorithmTable, of_a_host_chooses_alike_whether_ranks_share_its_cores_or_not) {
  const std::vector<int> hosts = {0, 0, 0, 0};
  CostEnvironment own;
  own.one_machine = true;
  CostEnvironment shared = own;
  shared.shared_cores = 2;
  for (std::size_t elements = 1; elements <= 1 << 20; elements *= 2) {
    EXPECT_EQ(AlgorithmTable(shared, hosts).choose(asked(elements)),
              AlgorithmTable(own, hosts).choose(asked(elements)));
  }
}

// Its streams come from one peer only.
TEST(AlgorithmTable, of_ranks_that_share_cores_takes_the_ring_for_long_streams_over_tcp) {
  const std::vector<int> hosts = {0, 0, 0, 0};
  CostEnvironment cost_environment;
  cost_environment.tcp_inside = true;
  EXPECT_EQ(AlgorithmTable(cost_environment, hosts).choose(asked(1 << 20)), Algorithm::sra);
  cost_environment.shared_cores = 2;
  EXPECT_EQ(AlgorithmTable(cost_environment, hosts).choose(asked(1 << 20)), Algorithm::ring);
  EXPECT_EQ(AlgorithmTable(cost_environment, hosts).choose(asked(1 << 15)), Algorithm::sra);
  cost_environment.tcp_inside = false;
  EXPECT_EQ(AlgorithmTable(cost_environment, hosts).choose(asked(1 << 20)), Algorithm::sra);
}

TEST(CostEnvironment, are_read_back_as_they_were_written) {
  CostEnvironment cost_environment = slow_wire();
  cost_environment.tcp_inside = true;
  cost_environment.paced_rate = 12.5e6;
  cost_environment.shared_cores = 2;
  cost_environment.one_machine = true;
  const auto back = parse_cost_environment(to_text(cost_environment));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(to_text(back.value()), to_text(cost_environment));
  EXPECT_TRUE(back.value().tcp_inside);
  EXPECT_EQ(back.value().shared_cores, 2);
  EXPECT_TRUE(back.value().one_machine);
  EXPECT_EQ(back.value().links("none").wire_rate, 12.5e6);
}

TEST(CostEnvironment, that_are_none_are_refused) {
  const std::string text = to_text(CostEnvironment());
  const std::vector<std::string> all = {"",
                                        text.substr(1),
                                        "inside udp" + text.substr(10),
                                        text + "speed 1\n",
                                        "inside shm\npaced -1\n",
                                        "inside shm\npaced nan\n",
                                        "inside shm\npaced 0\nslice 1\ncores -1\nmachines one\n",
                                        "inside shm\npaced"};
  for (const std::string& bad : all) {
    EXPECT_FALSE(parse_cost_environment(bad).ok()) << bad;
  }
}

class ProfileFile : public ::testing::Test {
 protected:
  ProfileFile() : path_(std::filesystem::temp_directory_path() / ("qccl-profile-" + std::to_string(::getpid()))) {}
  ~ProfileFile() override { std::filesystem::remove(path_); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  Result<CostEnvironment> read() const {
    Options options;
    options.profile = path_.string();
    return cost_environment_of(options);
  }
  std::string complaint() const {
    auto cost_environment = read();
    return cost_environment.ok() ? "" : cost_environment.error().message;
  }

  const std::filesystem::path path_;
};

TEST_F(ProfileFile, is_read) {
  write("wire.host_Gbps 0.5\n");
  const auto cost_environment = read();
  ASSERT_TRUE(cost_environment.ok()) << cost_environment.error().message;
  EXPECT_NEAR(cost_environment.value().profile.wire_rate, 62.5e6, 1);
}

TEST_F(ProfileFile, that_is_missing_wrong_or_too_long_is_an_error_that_names_it) {
  EXPECT_NE(complaint().find("QCCL_PROFILE=" + path_.string() + ": can't be read"), std::string::npos) << complaint();
  write("wire.host_Gbps much\n");
  EXPECT_NE(complaint().find("line 1 of the profile is not understood"), std::string::npos) << complaint();
  std::string many;
  for (int i = 0; i < 500; ++i) many += "codec_GBps codec" + std::to_string(i) + " 1 1\n";
  write(many);
  EXPECT_NE(complaint().find("more lines than a profile can have"), std::string::npos) << complaint();
}

TEST(Resolve, of_an_exchange_with_counts_goes_by_nothing_that_ranks_know_apart) {
  AlgorithmTable table(slow_wire(), {0, 1});
  GroupDefaults defaults;
  defaults.table = &table;
  for (const std::uint64_t own : {std::uint64_t{1}, std::uint64_t{1} << 24}) {
    const CallOptions options;
    const PooledVector<std::uint64_t> counts{own, 1, own, 1};
    const auto call =
        resolve({Collective::all_to_all, nullptr, nullptr, 0, DataType::float32, options, counts}, 2, defaults);
    ASSERT_TRUE(call.ok());
    EXPECT_EQ(call.value().algorithm, Algorithm::one_shot);
  }
}

TEST(ExplainAlgorithm, says_what_was_asked_for_and_what_was_predicted) {
  AlgorithmTable table(slow_wire(), kTwoHosts);
  GroupDefaults defaults;
  defaults.table = &table;
  const auto explained = [&](const CallOptions& options) {
    const auto call =
        resolve({Collective::all_reduce, nullptr, nullptr, 1 << 24, DataType::float32, options}, 8, defaults);
    return explain_algorithm(call.value(), 8, options, defaults);
  };
  EXPECT_EQ(explained({.algorithm = Algorithm::ring}), "ring: asked for");
  const std::string said = explained({});
  EXPECT_NE(said.find("hierarchical, "), std::string::npos) << said;
  EXPECT_NE(said.find("% of the time of sra (one_shot "), std::string::npos) << said;
}

}  // namespace
}  // namespace qccl::comm
