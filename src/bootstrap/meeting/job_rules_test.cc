#include "bootstrap/meeting/job_rules.h"

#include <gtest/gtest.h>

#include "bootstrap/store/store_service.h"

namespace qccl::bootstrap {
namespace {

const JobKeys kKeys("job", 0, 4);
const std::string kPrefix = "/qccl/job/0/";
const std::string kOutcome = encode_outcome({.kind = GenerationResult::Kind::failed, .reason = "a reason"});

// In generation `which`: whether the client may end it in each way.
std::vector<bool> ways_to_end(const JobRules& rules, StoreRules::Client client, const std::string& which = "1") {
  const std::string prefix = kPrefix + which + "/";
  return {rules.may_add(client, prefix + "closed", 1), rules.may_set(client, prefix + "closed", "1"),
          rules.may_set(client, prefix + "outcome", kOutcome), rules.may_set(client, prefix + "failure", "a reason")};
}

const std::vector<bool> kNone(4, false), kAll(4, true);

TEST(JobRules, only_a_client_whose_card_was_the_first_ends_its_generation) {
  JobRules rules(kKeys);
  StoreState state;
  EXPECT_EQ(ways_to_end(rules, 1), kNone);
  rules.has_added(1, kPrefix + "1/claim/2", 1);
  EXPECT_EQ(ways_to_end(rules, 1), kNone);
  rules.has_set(1, kPrefix + "1/card/2", state);
  EXPECT_EQ(ways_to_end(rules, 1), kAll);
  EXPECT_EQ(ways_to_end(rules, 1, "2"), kNone);
  EXPECT_EQ(ways_to_end(rules, 2), kNone);
  rules.has_ended(1, state);
  EXPECT_EQ(ways_to_end(rules, 1), kNone);
}

TEST(JobRules, a_card_of_a_rank_beyond_the_world_gives_no_place) {
  JobRules rules(kKeys);
  StoreState state;
  rules.has_set(1, kPrefix + "1/card/4", state);
  EXPECT_EQ(ways_to_end(rules, 1), kNone);
}

TEST(JobRules, whoever_knows_a_secret_name_ends_its_job) {
  EXPECT_EQ(ways_to_end(JobRules(kKeys, JobRules::Enders::everyone), 1), kAll);
}

TEST(JobRules, keys_that_no_rank_writes_are_refused_and_all_may_look) {
  const JobRules rules(kKeys, JobRules::Enders::everyone);
  EXPECT_FALSE(rules.may_set(1, kPrefix + "1/open", "me"));
  EXPECT_FALSE(rules.may_add(1, kPrefix + "generation", 1));
  EXPECT_FALSE(rules.may_leave(kPrefix + "1/open", "me"));
  EXPECT_TRUE(rules.may_leave(kPrefix + "1/failure", "a reason"));
  EXPECT_TRUE(JobRules(kKeys).may_add(1, kPrefix + "1/closed", 0));
}

}  // namespace
}  // namespace qccl::bootstrap
