#include "bootstrap/protocol/key_rules.h"

#include <gtest/gtest.h>

#include "bootstrap/protocol/formats.h"
#include "bootstrap/store/store_protocol.h"
#include "bootstrap/store/store_service.h"

namespace qccl::bootstrap {
namespace {

const std::string kJobPrefix = "/qccl/job/0/";
const std::string kOutcome = encode_outcome({.kind = GenerationResult::Kind::failed, .reason = "a reason"});

// In generation `which`: whether the client may end it in each way.
std::vector<bool> ways_to_end(const JobRules& rules, StoreRules::Client client, const std::string& which = "1") {
  const std::string prefix = kJobPrefix + which + "/";
  return {rules.may_add(client, prefix + "closed", 1), rules.may_set(client, prefix + "closed", "1"),
          rules.may_set(client, prefix + "outcome", kOutcome), rules.may_set(client, prefix + "failure", "a reason")};
}

const std::vector<bool> kNone(4, false), kAll(4, true);

TEST(JobRules, only_a_client_whose_card_was_the_first_ends_its_generation) {
  JobRules rules("job", 0, 4);
  StoreState state;
  EXPECT_EQ(ways_to_end(rules, 1), kNone);
  rules.has_added(1, kJobPrefix + "1/claim/2", 1);
  EXPECT_EQ(ways_to_end(rules, 1), kNone);
  rules.has_set(1, kJobPrefix + "1/card/2", state);
  EXPECT_EQ(ways_to_end(rules, 1), kAll);
  EXPECT_EQ(ways_to_end(rules, 1, "2"), kNone);
  EXPECT_EQ(ways_to_end(rules, 2), kNone);
  rules.has_ended(1, state);
  EXPECT_EQ(ways_to_end(rules, 1), kNone);
}

TEST(JobRules, a_card_of_a_rank_beyond_the_world_gives_no_place) {
  JobRules rules("job", 0, 4);
  StoreState state;
  for (const char* key : {"1/card/4", "1/card/0", "1/claim/1", "1/closed", "17/card/1", "generation"}) {
    rules.has_set(1, kJobPrefix + key, state);
    EXPECT_EQ(ways_to_end(rules, 1), kNone) << key;
  }
}

// Client 1 has a place in generation 1.
JobRules with_place(const std::string& job, std::uint32_t restart) {
  JobRules rules(job, restart, 4);
  StoreState state;
  rules.has_set(1, wire_key(key_prefix(job, restart)) + "1/card/2", state);
  return rules;
}

TEST(JobRules, keys_that_no_rank_writes_are_refused_and_all_may_look) {
  const JobRules rules = with_place("job", 0);
  EXPECT_EQ(ways_to_end(rules, 1), kAll);
  EXPECT_FALSE(rules.may_set(1, kJobPrefix + "1/open", "me"));
  EXPECT_FALSE(rules.may_add(1, kJobPrefix + "generation", 1));
  EXPECT_FALSE(rules.may_leave(kJobPrefix + "1/open", "me"));
  EXPECT_TRUE(rules.may_leave(kJobPrefix + "1/failure", "a reason"));
  EXPECT_TRUE(JobRules("job", 0, 4).may_add(1, kJobPrefix + "1/closed", 0));
}

const JobRules kRules = with_place("a job", 2);
const std::string kPrefix = "/qccl/a%20job/2/";
const std::string kRecord = encode_record({.world = 4, .token = 7, .process = "process 1 on node0", .card = "card"});

std::string outcome(GenerationResult::Kind kind) { return encode_outcome({.kind = kind, .reason = "a reason"}); }

TEST(JobRules, ranks_may_write_the_keys_of_the_start) {
  EXPECT_TRUE(kRules.may_add(1, kPrefix + "1/claim/3", 1));
  EXPECT_TRUE(kRules.may_add(1, kPrefix + "1/closed", 1));
  EXPECT_TRUE(kRules.may_add(1, kPrefix + "generation", 0));
  EXPECT_TRUE(kRules.may_add(1, "/qccl/another/0/generation", 0));
  EXPECT_TRUE(kRules.may_set(1, kPrefix + "16/card/1023", kRecord));
  EXPECT_TRUE(kRules.may_set(1, kPrefix + "1/outcome", outcome(GenerationResult::Kind::failed)));
  EXPECT_TRUE(kRules.may_set(1, kPrefix + "1/failure", "rank 1 of 4: no luck"));
}

TEST(JobRules, ranks_may_list_a_bounded_number_of_doors) {
  const std::string prefix = "/qccl/a%20job%2Fdoor/0/";
  EXPECT_TRUE(kRules.may_add(1, prefix + "doors", 1));
  EXPECT_FALSE(kRules.may_add(1, prefix + "doors", 2));
  EXPECT_FALSE(kRules.may_set(1, prefix + "doors", "1"));
  EXPECT_TRUE(kRules.may_set(1, prefix + "door/1", kRecord));
  EXPECT_TRUE(kRules.may_set(1, prefix + "door/4096", kRecord));
  EXPECT_FALSE(kRules.may_set(1, prefix + "door/1", "garbage"));
  for (const char* key :
       {"door/0", "door/4097", "door/01", "door/-1", "door/", "door", "door/1/", "doors/1", "tickets"}) {
    EXPECT_FALSE(kRules.may_set(1, prefix + key, kRecord)) << key;
    EXPECT_FALSE(kRules.may_add(1, prefix + key, 1)) << key;
  }
  EXPECT_FALSE(kRules.may_add(1, "/qccl/other%2Fdoor/0/doors", 1));
}

TEST(JobRules, keys_of_rank_0_are_refused) {
  EXPECT_FALSE(kRules.may_add(1, kPrefix + "generation", 1));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "generation", "1"));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/open", "me"));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/card/0", kRecord));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/outcome", outcome(GenerationResult::Kind::complete)));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/outcome", outcome(GenerationResult::Kind::superseded)));
}

TEST(JobRules, values_that_no_rank_writes_are_refused) {
  EXPECT_FALSE(kRules.may_add(1, kPrefix + "1/claim/3", 2));
  EXPECT_FALSE(kRules.may_add(1, kPrefix + "1/claim/3", -1));
  EXPECT_FALSE(kRules.may_add(1, kPrefix + "1/closed", INT64_MAX));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/closed", "0"));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/closed", "01"));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/claim/1", "1"));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/card/1", "garbage"));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/card/1", kRecord + "x"));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/outcome", "garbage"));
  EXPECT_FALSE(kRules.may_set(1, kPrefix + "1/failure", std::string(kMaxReasonBytes + 1, 'x')));
}

// This limits the number of keys to the combinations of ranks and generations.
TEST(JobRules, a_key_has_one_spelling) {
  for (const char* key :
       {"0/card/1", "17/card/1",   "01/card/1", "+1/card/1", "-1/card/1",  "1/card/01", "1/card/-1", "1/card/1/",
        "1/card/",  "1/card/1024", "1/card/1x", "1/card",    "1/card/1/1", "1//card/1", "1 /card/1", "card/1",
        "/card/1",  "1",           "1/",        ""}) {
    EXPECT_FALSE(kRules.may_set(1, kPrefix + key, kRecord)) << key;
  }
  EXPECT_FALSE(kRules.may_set(1, "/qccl/a job/2/1/card/1", kRecord));
  EXPECT_FALSE(kRules.may_set(1, "/qccl/a%20job/02/1/card/1", kRecord));
  EXPECT_FALSE(kRules.may_set(1, "/qccl/another/2/1/card/1", kRecord));
  for (const char* key : {"1/closed/", "1/closed/0", "1/closed/1", "1/claim", "1/claim/0", "01/closed", "1/other"}) {
    EXPECT_FALSE(kRules.may_add(1, kPrefix + key, 1)) << key;
  }
}

}  // namespace
}  // namespace qccl::bootstrap
