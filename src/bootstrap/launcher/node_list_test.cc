#include "bootstrap/launcher/launchers.h"

#include <gtest/gtest.h>

namespace qccl::bootstrap {
namespace {

using Texts = std::vector<std::string>;

Texts expanded(const char* list) { return expand_node_list(list).take_or_throw(); }

TEST(NodeList, plain_names_stay) {
  EXPECT_EQ(expanded("localhost"), Texts({"localhost"}));
  EXPECT_EQ(expanded("a-1.example,b"), Texts({"a-1.example", "b"}));
}

TEST(NodeList, ranges_keep_their_zeros_and_their_order) {
  EXPECT_EQ(expanded("node[01-03,7],gpu1"), Texts({"node01", "node02", "node03", "node7", "gpu1"}));
  EXPECT_EQ(expanded("n[9-11]"), Texts({"n9", "n10", "n11"}));
  EXPECT_EQ(expanded("n[098-101]x"), Texts({"n098x", "n099x", "n100x", "n101x"}));
  EXPECT_EQ(expanded("n[5]"), Texts({"n5"}));
}

TEST(NodeList, several_brackets_multiply_the_last_one_fastest) {
  EXPECT_EQ(expanded("r[1-2]n[3,4]"), Texts({"r1n3", "r1n4", "r2n3", "r2n4"}));
}

TEST(NodeList, any_other_text_is_refused) {
  for (const char* list : {"", ",", "a,", ",a", "a[", "a]", "a[1", "a[]", "a[1-]", "a[-1]", "a[2-1]", "a[x]", "a[1,]",
                           "a[0-99999999]", "a[0-999]b[0-999]", "a[1-2-3]"}) {
    const auto result = expand_node_list(list);
    ASSERT_FALSE(result.ok()) << list;
    EXPECT_EQ(result.error().kind, ErrorKind::invalid_argument) << list;
  }
}

TEST(TaskCounts, repeats_are_written_out) {
  EXPECT_EQ(expand_task_counts("4(x2),3").take_or_throw(), std::vector<int>({4, 4, 3}));
  EXPECT_EQ(expand_task_counts("8").take_or_throw(), std::vector<int>({8}));
}

TEST(TaskCounts, any_other_text_is_refused) {
  for (const char* list : {"", "x", "4(x2", "4(2)", "4,", "4(x99999999)", "-1"}) {
    EXPECT_FALSE(expand_task_counts(list).ok()) << list;
  }
}

}  // namespace
}  // namespace qccl::bootstrap
