#include "bootstrap/launcher/membership.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace qccl::bootstrap {
namespace {

using Variables = std::map<std::string, std::string>;

Result<Membership> discover(Variables variables, const InitOptions& options = {}) {
  return discover_membership(options, [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

Variables torchrun(const std::string& rank) {
  return {{"RANK", rank},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "run7"},
          {"TORCHELASTIC_RESTART_COUNT", "3"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
}

Variables without(Variables variables, const char* name) {
  variables.erase(name);
  return variables;
}

Variables with(Variables variables, const char* name, const char* value) {
  variables[name] = value;
  return variables;
}

// Checks that `result` failed with InvalidArgument and the message has all of `words`.
void expect_invalid(const Result<Membership>& result, const std::vector<std::string>& words) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::invalid_argument);
  const std::string& message = result.error().message;
  for (const auto& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
}

class EmptyStore final : public Store {
 public:
  void set(const std::string&, const std::string&) override {}
  std::optional<std::string> get(const std::string&, std::chrono::milliseconds) override { return std::nullopt; }
  std::int64_t add(const std::string&, std::int64_t delta) override { return delta; }
};

TEST(Membership, nothing_set_is_a_single_process) {
  auto found = discover({});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->world, 1);
  EXPECT_EQ(found->local_world, 1);
  EXPECT_FALSE(found->hosts_store);
  EXPECT_NE(found->source.find("single process"), std::string::npos);
}

TEST(Membership, all_of_torchruns_variables_are_read) {
  auto found = discover(torchrun("3"));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->world, 4);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_world, 2);
  EXPECT_EQ(found->master_address, "node0");
  EXPECT_EQ(found->master_port, 29500);
  EXPECT_EQ(found->job, "run7");
  EXPECT_EQ(found->restart, 3u);
  EXPECT_FALSE(found->hosts_store);
  EXPECT_NE(found->source.find("RANK"), std::string::npos);
}

TEST(Membership, rank_0_hosts_the_store_unless_the_agent_does) {
  const auto host = with(torchrun("0"), "LOCAL_RANK", "0");
  EXPECT_TRUE(discover(host)->hosts_store);
  EXPECT_FALSE(discover(with(host, "TORCHELASTIC_USE_AGENT_STORE", "True"))->hosts_store);
}

TEST(Membership, a_port_of_the_programs_own_is_not_the_agents) {
  InitOptions options;
  options.master_port = 4000;
  EXPECT_TRUE(discover(with(torchrun("0"), "TORCHELASTIC_USE_AGENT_STORE", "True"), options)->hosts_store);
}

TEST(Membership, options_win_over_variables) {
  InitOptions options;
  options.rank = 0;
  options.world = 2;
  options.master_address = "10.0.0.9";
  options.job = "mine";
  auto found = discover(torchrun("3"), options);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->world, 2);
  EXPECT_EQ(found->local_rank, -1);
  EXPECT_EQ(found->master_address, "10.0.0.9");
  EXPECT_EQ(found->master_port, 29500);
  EXPECT_EQ(found->job, "mine");
  EXPECT_EQ(found->source, "init() options");
}

TEST(Membership, own_store_needs_no_master) {
  InitOptions options;
  options.rank = 0;
  options.world = 2;
  options.store = std::make_shared<EmptyStore>();
  auto found = discover({}, options);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_FALSE(found->hosts_store);
}

TEST(Membership, half_a_set_names_what_is_missing) {
  expect_invalid(discover(without(torchrun("1"), "RANK")), {"WORLD_SIZE is set but RANK is not"});
  expect_invalid(discover(without(torchrun("1"), "WORLD_SIZE")), {"RANK is set but WORLD_SIZE is not"});
  expect_invalid(discover(without(torchrun("1"), "MASTER_ADDR")), {"MASTER_ADDR is not set"});
  expect_invalid(discover(without(torchrun("1"), "MASTER_PORT")), {"MASTER_PORT is not set"});
  expect_invalid(discover({{"MASTER_ADDR", "node0"}}), {"MASTER_ADDR is set but RANK is not"});
  expect_invalid(discover({{"LOCAL_RANK", "1"}}), {"LOCAL_RANK is set but RANK is not"});
}

TEST(Membership, bad_numbers_name_the_variable_and_the_value) {
  expect_invalid(discover(torchrun("two")), {"RANK", "\"two\"", "0 to"});
  expect_invalid(discover(torchrun("-1")), {"RANK", "\"-1\""});
  expect_invalid(discover(torchrun("1 ")), {"RANK", "\"1 \""});
  expect_invalid(discover(torchrun("4")), {"RANK is 4 but WORLD_SIZE is 4"});
  expect_invalid(discover(with(torchrun("0"), "WORLD_SIZE", "0")), {"WORLD_SIZE", "\"0\""});
  expect_invalid(discover(with(torchrun("0"), "WORLD_SIZE", "99999999999999999999")), {"WORLD_SIZE"});
  expect_invalid(discover(with(torchrun("0"), "MASTER_PORT", "65536")), {"MASTER_PORT", "65536", "1 to 65535"});
  expect_invalid(discover(with(torchrun("0"), "LOCAL_RANK", "2")), {"LOCAL_RANK", "\"2\"", "0 to 1"});
  expect_invalid(discover(with(torchrun("0"), "LOCAL_WORLD_SIZE", "5")), {"LOCAL_WORLD_SIZE", "\"5\"", "1 to 4"});
  expect_invalid(discover(with(torchrun("0"), "TORCHELASTIC_RESTART_COUNT", "x")), {"TORCHELASTIC_RESTART_COUNT"});
  InitOptions options;
  options.rank = -3;
  expect_invalid(discover({}, options), {"InitOptions::rank", "\"-3\""});
}

TEST(Membership, one_host_is_known_by_local_world_or_a_loopback_master) {
  EXPECT_FALSE(on_one_host(*discover(torchrun("1"))));
  EXPECT_TRUE(on_one_host(*discover(with(torchrun("1"), "LOCAL_WORLD_SIZE", "4"))));
  const auto unknown = without(torchrun("1"), "LOCAL_WORLD_SIZE");
  EXPECT_FALSE(on_one_host(*discover(unknown)));
  EXPECT_TRUE(on_one_host(*discover(with(unknown, "MASTER_ADDR", "127.0.0.1"))));
  EXPECT_FALSE(on_one_host(*discover(with(torchrun("1"), "MASTER_ADDR", "localhost"))));
}

}  // namespace
}  // namespace qccl::bootstrap
