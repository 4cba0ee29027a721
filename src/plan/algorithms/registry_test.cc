#include "plan/algorithms/registry.h"

#include <gtest/gtest.h>

#include <set>

namespace qccl::plan {
namespace {

TEST(Registry, has_every_algorithm_that_users_can_request_once) {
  std::set<Algorithm> listed;
  for (const AlgorithmEntry* entry : algorithm_list()) {
    EXPECT_TRUE(listed.insert(entry->algorithm).second) << to_string(entry->algorithm) << " twice";
    EXPECT_EQ(&entry_of(entry->algorithm), entry);
  }
  EXPECT_EQ(listed, std::set<Algorithm>(std::begin(kEveryAlgorithm), std::end(kEveryAlgorithm)));
}

TEST(Registry, names_differ) {
  std::set<std::string_view> names;
  for (const AlgorithmEntry* entry : algorithm_list()) {
    EXPECT_NE(to_string(entry->algorithm), "unknown");
    EXPECT_TRUE(names.insert(to_string(entry->algorithm)).second) << to_string(entry->algorithm);
  }
}

TEST(Registry, one_shot_has_every_collective) {
  for (const Collective collective : kEveryCollective) {
    EXPECT_TRUE(has_algorithm(collective, Algorithm::one_shot)) << to_string(collective);
    for (const Algorithm algorithm : algorithms_of(collective)) {
      EXPECT_TRUE(has_algorithm(collective, built_for(algorithm, /*compressed=*/true))) << to_string(algorithm);
    }
  }
  EXPECT_EQ(algorithms_of(Collective::barrier).size(), 1u);
}

TEST(Registry, an_automatic_algorithm_stays_automatic) {
  EXPECT_EQ(built_for(Algorithm::automatic, true), Algorithm::automatic);
  EXPECT_EQ(built_for(Algorithm::recursive_doubling, false), Algorithm::recursive_doubling);
  EXPECT_EQ(built_for(Algorithm::recursive_doubling, true), Algorithm::one_shot);
}

}  // namespace
}  // namespace qccl::plan
