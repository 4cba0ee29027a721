#include "bootstrap/meeting/job_keys.h"

#include <gtest/gtest.h>

namespace qccl::bootstrap {
namespace {

const JobKeys kKeys("a job", 2, 4);
const std::string kPrefix = "/qccl/a%20job/2/";
const std::string kRecord = encode_record({.world = 4, .token = 7, .process = "process 1 on node0", .card = "card"});

std::string outcome(GenerationResult::Kind kind) { return encode_outcome({.kind = kind, .reason = "a reason"}); }

TEST(JobKeys, ranks_may_write_the_keys_of_the_start) {
  EXPECT_TRUE(kKeys.may_add(kPrefix + "1/claim/3", 1));
  EXPECT_TRUE(kKeys.may_add(kPrefix + "1/closed", 1));
  EXPECT_TRUE(kKeys.may_add(kPrefix + "generation", 0));
  EXPECT_TRUE(kKeys.may_add("/qccl/another/0/generation", 0));
  EXPECT_TRUE(kKeys.may_set(kPrefix + "16/card/1023", kRecord));
  EXPECT_TRUE(kKeys.may_set(kPrefix + "1/outcome", outcome(GenerationResult::Kind::failed)));
  EXPECT_TRUE(kKeys.may_set(kPrefix + "1/failure", "rank 1 of 4: no luck"));
}

TEST(JobKeys, ranks_may_list_a_bounded_number_of_doors) {
  const std::string prefix = "/qccl/a%20job%2Fdoor/0/";
  EXPECT_TRUE(kKeys.may_add(prefix + "doors", 1));
  EXPECT_FALSE(kKeys.may_add(prefix + "doors", 2));
  EXPECT_FALSE(kKeys.may_set(prefix + "doors", "1"));
  EXPECT_TRUE(kKeys.may_set(prefix + "door/1", kRecord));
  EXPECT_TRUE(kKeys.may_set(prefix + "door/4096", kRecord));
  EXPECT_FALSE(kKeys.may_set(prefix + "door/1", "garbage"));
  for (const char* key :
       {"door/0", "door/4097", "door/01", "door/-1", "door/", "door", "door/1/", "doors/1", "tickets"}) {
    EXPECT_FALSE(kKeys.may_set(prefix + key, kRecord)) << key;
    EXPECT_FALSE(kKeys.may_add(prefix + key, 1)) << key;
  }
  EXPECT_FALSE(kKeys.may_add("/qccl/other%2Fdoor/0/doors", 1));
}

TEST(JobKeys, keys_of_rank_0_are_refused) {
  EXPECT_FALSE(kKeys.may_add(kPrefix + "generation", 1));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "generation", "1"));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/open", "me"));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/card/0", kRecord));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/outcome", outcome(GenerationResult::Kind::complete)));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/outcome", outcome(GenerationResult::Kind::superseded)));
}

TEST(JobKeys, values_that_no_rank_writes_are_refused) {
  EXPECT_FALSE(kKeys.may_add(kPrefix + "1/claim/3", 2));
  EXPECT_FALSE(kKeys.may_add(kPrefix + "1/claim/3", -1));
  EXPECT_FALSE(kKeys.may_add(kPrefix + "1/closed", INT64_MAX));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/closed", "0"));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/closed", "01"));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/claim/1", "1"));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/card/1", "garbage"));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/card/1", kRecord + "x"));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/outcome", "garbage"));
  EXPECT_FALSE(kKeys.may_set(kPrefix + "1/failure", std::string(kMaxReasonBytes + 1, 'x')));
}

TEST(JobKeys, a_card_of_the_world_enters_a_generation_and_three_keys_end_it) {
  EXPECT_EQ(kKeys.entered_by(kPrefix + "1/card/1"), 1);
  EXPECT_EQ(kKeys.entered_by(kPrefix + "16/card/3"), 16);
  for (const char* key : {"1/card/4", "1/card/0", "1/claim/1", "1/closed", "17/card/1", "generation"}) {
    EXPECT_EQ(kKeys.entered_by(kPrefix + key), 0) << key;
  }
  for (const char* key : {"2/closed", "2/outcome", "2/failure"}) EXPECT_EQ(kKeys.ended_by(kPrefix + key), 2) << key;
  for (const char* key : {"2/claim/1", "2/card/1", "2/open", "17/closed", "generation"}) {
    EXPECT_EQ(kKeys.ended_by(kPrefix + key), 0) << key;
  }
}

// This limits the number of keys to the combinations of ranks and generations.
TEST(JobKeys, a_key_has_one_spelling) {
  for (const char* key :
       {"0/card/1", "17/card/1",   "01/card/1", "+1/card/1", "-1/card/1",  "1/card/01", "1/card/-1", "1/card/1/",
        "1/card/",  "1/card/1024", "1/card/1x", "1/card",    "1/card/1/1", "1//card/1", "1 /card/1", "card/1",
        "/card/1",  "1",           "1/",        ""}) {
    EXPECT_FALSE(kKeys.may_set(kPrefix + key, kRecord)) << key;
  }
  EXPECT_FALSE(kKeys.may_set("/qccl/a job/2/1/card/1", kRecord));
  EXPECT_FALSE(kKeys.may_set("/qccl/a%20job/02/1/card/1", kRecord));
  EXPECT_FALSE(kKeys.may_set("/qccl/another/2/1/card/1", kRecord));
  for (const char* key : {"1/closed/", "1/closed/0", "1/closed/1", "1/claim", "1/claim/0", "01/closed", "1/other"}) {
    EXPECT_FALSE(kKeys.may_add(kPrefix + key, 1)) << key;
  }
}

}  // namespace
}  // namespace qccl::bootstrap
