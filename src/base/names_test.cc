#include <set>
#include <string>

#include "gtest/gtest.h"
#include "qccl/error.h"
#include "qccl/types.h"

namespace qccl {
namespace {

// The names of the first `count` values are all different, and the value after has none.
template <class Enum>
void expect_names(int count) {
  std::set<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace(to_string(static_cast<Enum>(i)));
  EXPECT_EQ(static_cast<int>(names.size()), count);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(std::string(to_string(static_cast<Enum>(count))), "unknown");
}

TEST(Names, every_value_has_its_own) {
  expect_names<ErrorKind>(8);
  expect_names<DataType>(7);
  expect_names<ReduceOp>(5);
  expect_names<Collective>(5);
  expect_names<Algorithm>(3);
}

TEST(Names, are_the_words_users_write) {
  EXPECT_STREQ(to_string(ErrorKind::peer_lost), "peer_lost");
  EXPECT_EQ(to_string(DataType::bfloat16), "bfloat16");
  EXPECT_EQ(to_string(ReduceOp::avg), "avg");
  EXPECT_EQ(to_string(Collective::reduce_scatter), "reduce_scatter");
  EXPECT_EQ(to_string(Algorithm::automatic), "auto");
}

}  // namespace
}  // namespace qccl
